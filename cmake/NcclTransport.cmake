# peelreduce_nccl: the transport over NCCL, where the CUDA toolkit and NCCL are found. Left out of sanitizer builds,
# whose flags nvcc does not know.
set(PEEL_WITH_NCCL OFF)
if(NOT PEEL_NCCL OR PEEL_SANITIZE)
  return()
endif()
find_package(CUDAToolkit QUIET)
if(CUDAToolkit_FOUND)
  find_package(NCCL QUIET)
endif()
if(NOT NCCL_FOUND OR NOT CUDAToolkit_NVCC_EXECUTABLE)
  return()
endif()

# What datacenters have (A100, H100, B200), and PTX for what comes. Both are told by the environment, since the trial of
# the compiler sees nothing else: it may not be in PATH, and CMake 3.25 would try it with a chip that nvcc 13 has dropped.
if(NOT DEFINED ENV{CUDAARCHS})
  set(ENV{CUDAARCHS} "80-real;90-real;100")
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
set(CMAKE_CUDA_STANDARD 17)  # CMake knows 20 from 3.26 on, and kernels do not need it
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)  # the caller's streams belong to it; a second one inside would not know them

file(GLOB peel_nccl_sources CONFIGURE_DEPENDS src/transport/nccl/*.cpp src/transport/nccl/*.cu)
add_library(peelreduce_nccl ${peel_nccl_sources})
add_library(peelreduce::nccl ALIAS peelreduce_nccl)
set_target_properties(peelreduce_nccl PROPERTIES EXPORT_NAME nccl VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
target_sources(peelreduce_nccl PUBLIC FILE_SET HEADERS BASE_DIRS include FILES include/peel/nccl.h)
target_include_directories(peelreduce_nccl PRIVATE src)
target_compile_options(peelreduce_nccl PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${peel_strict_warnings}>")
target_link_libraries(peelreduce_nccl PUBLIC peelreduce CUDA::cudart NCCL::nccl)
set(PEEL_WITH_NCCL ON)
list(APPEND peel_transports nccl)
list(APPEND peel_libraries_to_install peelreduce_nccl)
