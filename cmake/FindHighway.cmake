# Google Highway as the target hwy::hwy, however it was installed: with its CMake package, or only as header and
# library. Installed next to the package config, so that consumers of the static library find it the same way.
find_package(hwy CONFIG QUIET)
if(TARGET hwy::hwy)
  set(Highway_FOUND TRUE)
  set(Highway_VERSION "${hwy_VERSION}")
  return()
endif()

find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
  pkg_check_modules(PC_HWY QUIET libhwy)
endif()
find_path(Highway_INCLUDE_DIR hwy/highway.h HINTS ${PC_HWY_INCLUDE_DIRS})
find_library(Highway_LIBRARY hwy HINTS ${PC_HWY_LIBRARY_DIRS})
mark_as_advanced(Highway_INCLUDE_DIR Highway_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Highway
  REQUIRED_VARS Highway_LIBRARY Highway_INCLUDE_DIR
  VERSION_VAR PC_HWY_VERSION)

if(Highway_FOUND)
  add_library(hwy::hwy UNKNOWN IMPORTED)
  set_target_properties(hwy::hwy PROPERTIES
    IMPORTED_LOCATION "${Highway_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${Highway_INCLUDE_DIR}")
  if(Highway_LIBRARY MATCHES "\\.so")
    # Highway's headers assume a static library unless told otherwise.
    set_target_properties(hwy::hwy PROPERTIES INTERFACE_COMPILE_DEFINITIONS HWY_SHARED_DEFINE)
  endif()
endif()
