# The CUDA toolkit and its compiler, for everything here that runs on GPUs. PEEL_WITH_NVCC says whether they are there.
# Left out of sanitizer builds, whose flags nvcc does not know.
#
#   -DCMAKE_CUDA_ARCHITECTURES=90-real, or CUDAARCHS in the environment: for these chips only, which compiles sooner
include_guard()
set(PEEL_WITH_NVCC OFF)
if(PEEL_SANITIZE)
  return()
endif()
find_package(CUDAToolkit QUIET)
if(NOT CUDAToolkit_FOUND OR NOT CUDAToolkit_NVCC_EXECUTABLE)
  return()
endif()

# The default: A100 and H100, whose kernels also serve later minor versions, and PTX for what comes, which the driver
# compiles at its first use. pack.cu takes 19 s of one core for 90, 35 s for these, 44 s with 100 as well (nvcc 13.0, Intel
# Xeon Emerald Rapids at 2.3 GHz, 2026-11-18). The environment tells both, since the trial of the compiler sees nothing
# else: it may not be in PATH, and CMake 3.25 would try it with a chip that nvcc 13 has dropped.
if(NOT DEFINED ENV{CUDAARCHS})
  set(ENV{CUDAARCHS} "80-real;90")
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    message(STATUS "peel: kernels for GPUs of compute capability 8.x and 9.x; newer ones compile theirs at the first use. "
                   "CUDAARCHS in the environment says otherwise: \"native\" for this machine, \"80-real;90-real;100\" for more.")
  endif()
endif()
if(NOT DEFINED ENV{CUDACXX})
  set(ENV{CUDACXX} "${CUDAToolkit_NVCC_EXECUTABLE}")
endif()
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  return()
endif()
enable_language(CUDA)
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)  # the caller's streams belong to it; a second one inside would not know them
set(PEEL_WITH_NVCC ON)

# The public headers are C++20. nvcc has known it since 12.0; CMake asks nvcc for it from 3.26 on, and before must be
# told how.
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)

# lineinfo costs nothing at run time and tells profilers and compute-sanitizer which line they look at. threads: the
# chips are compiled for side by side.
set(peel_cuda_options --expt-relaxed-constexpr -lineinfo --threads=0 -Xcompiler=-Wall,-Wextra
  $<$<BOOL:${PEEL_WERROR}>:--Werror=all-warnings>)
# Options of our own targets that have sources in both languages.
set(peel_mixed_options
  "$<$<COMPILE_LANGUAGE:CXX>:${peel_strict_warnings}>" "$<$<COMPILE_LANGUAGE:CUDA>:${peel_cuda_options}>")
