# peelreduce_cuda: the codec and exchanges on a GPU, where the CUDA toolkit is found.
set(PEEL_WITH_CUDA OFF)
if(NOT PEEL_CUDA)
  return()
endif()

if(PEEL_BUILT)
  if(EXISTS "${PEEL_BUILT}/libpeelreduce_cuda.a")
    find_package(CUDAToolkit REQUIRED)
    add_library(peelreduce_cuda STATIC IMPORTED GLOBAL)
    set_target_properties(peelreduce_cuda PROPERTIES IMPORTED_LOCATION "${PEEL_BUILT}/libpeelreduce_cuda.a")
    target_link_libraries(peelreduce_cuda INTERFACE peelreduce CUDA::cudart)
    set(PEEL_WITH_CUDA ON)
  endif()
  return()
endif()

include(CudaLanguage)
file(GLOB peel_cuda_sources CONFIGURE_DEPENDS
  src/codec/cuda/*.cu src/codec/cuda/*.cpp src/allreduce/cuda/*.cu src/allreduce/cuda/*.cpp)
if(NOT PEEL_WITH_NVCC OR NOT peel_cuda_sources)
  return()
endif()

add_library(peelreduce_cuda ${peel_cuda_sources})
add_library(peelreduce::cuda ALIAS peelreduce_cuda)
set_target_properties(peelreduce_cuda PROPERTIES EXPORT_NAME cuda VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
target_sources(peelreduce_cuda PUBLIC FILE_SET HEADERS BASE_DIRS include FILES include/peel/cuda.h)
target_include_directories(peelreduce_cuda PRIVATE src)
target_compile_options(peelreduce_cuda PRIVATE ${peel_mixed_options})
target_link_libraries(peelreduce_cuda PUBLIC peelreduce CUDA::cudart)
set(PEEL_WITH_CUDA ON)
list(APPEND peel_libraries_to_install peelreduce_cuda)
