# nccl.h, and the library where it is there: NCCL::nccl. Without the library the target still compiles, and the program
# that uses it brings its own NCCL (as PyTorch does).
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} DOC "Where nccl.h is")
find_library(NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR} DOC "NCCL, or nothing: left to the program")
mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL REQUIRED_VARS NCCL_INCLUDE_DIR)

if(NCCL_FOUND AND NOT TARGET NCCL::nccl)
  add_library(NCCL::nccl INTERFACE IMPORTED)
  target_include_directories(NCCL::nccl SYSTEM INTERFACE ${NCCL_INCLUDE_DIR})
  if(NCCL_LIBRARY)
    target_link_libraries(NCCL::nccl INTERFACE ${NCCL_LIBRARY})
  endif()
endif()
