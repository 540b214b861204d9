# peelreduce: plans, the codec on processors, item messages, exchanges, and the transport inside a process.
file(GLOB peel_sources CONFIGURE_DEPENDS
  src/plan/*.cpp src/codec/*.cpp src/codec/reference/*.cpp src/items/*.cpp src/allreduce/*.cpp
  src/transport/*.cpp)
file(GLOB peel_cpu_sources CONFIGURE_DEPENDS src/codec/cpu/*.cpp)
file(GLOB peel_headers CONFIGURE_DEPENDS include/peel/*.h)
list(FILTER peel_headers EXCLUDE REGEX "/(cuda|mpi|nccl)\\.h$")  # each goes with a library of its own

add_library(peelreduce ${peel_sources})
add_library(peelreduce::peelreduce ALIAS peelreduce)
target_sources(peelreduce PUBLIC FILE_SET HEADERS BASE_DIRS include FILES ${peel_headers})
target_include_directories(peelreduce PRIVATE src)
target_include_directories(peelreduce SYSTEM PRIVATE ${PEEL_XXHASH_INCLUDE_DIR})
target_compile_features(peelreduce PUBLIC cxx_std_20)
target_link_libraries(peelreduce PUBLIC Threads::Threads)
target_compile_definitions(peelreduce PRIVATE PEEL_VERSION="${PROJECT_VERSION}")
# fp-contract: a fused multiply-add rounds once instead of twice, so two vector widths would disagree about a bit.
target_compile_options(peelreduce PRIVATE ${peel_strict_warnings} -fno-math-errno -fno-trapping-math -ffp-contract=off)
set_target_properties(peelreduce PROPERTIES
  VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})

if(PEEL_WITH_HIGHWAY)
  target_sources(peelreduce PRIVATE ${peel_cpu_sources})
  target_compile_definitions(peelreduce PRIVATE PEEL_HAVE_CPU=1)
  target_link_libraries(peelreduce PRIVATE hwy::hwy)
endif()
if(PEEL_WITH_OPENMP)
  target_link_libraries(peelreduce PRIVATE OpenMP::OpenMP_CXX)
endif()

# Named ranges for Nsight Systems, where the header is found; without a profiler they cost nothing. The header sets
# itself up without a lock, which the thread sanitizer minds.
find_path(PEEL_NVTX_INCLUDE_DIR nvtx3/nvToolsExt.h HINTS /usr/local/cuda/include ENV CUDA_PATH
  PATH_SUFFIXES include DOC "Where nvtx3/nvToolsExt.h is")
mark_as_advanced(PEEL_NVTX_INCLUDE_DIR)
if(PEEL_NVTX_INCLUDE_DIR AND NOT PEEL_SANITIZE)
  target_include_directories(peelreduce SYSTEM PRIVATE ${PEEL_NVTX_INCLUDE_DIR})
  target_compile_definitions(peelreduce PRIVATE PEEL_HAVE_NVTX=1)
  target_link_libraries(peelreduce PRIVATE ${CMAKE_DL_LIBS})
endif()
