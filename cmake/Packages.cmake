# Debian packages, by `cpack -G DEB` in a build folder with -DCMAKE_INSTALL_PREFIX=/usr (the preset `package`):
#
#   peel               the program with its modules, manual and completions
#   libpeelreduce-dev  headers, static libraries and the CMake package
#   peelreduce-switch  the switch as a service of systemd
#
# Install rules without a component are the program's. What peel needs and what its modules need, which peel runs without,
# is told apart by packaging/debian/prepare.cmake when the files are there.
find_program(PEEL_GZIP gzip DOC "What compresses the changelog of Debian packages")
mark_as_advanced(PEEL_GZIP)
if(NOT PEEL_WITH_CLI OR NOT TARGET peel_switch OR BUILD_SHARED_LIBS OR NOT PEEL_GZIP)
  return()
endif()

# The service. `cmake --install` leaves it out: it names paths of this machine.
set(peel_service_folder "${PROJECT_BINARY_DIR}/packaging")
configure_file(packaging/switch/peelreduce-switch.service.in
  "${peel_service_folder}/peelreduce-switch.service" @ONLY)
set(peel_service COMPONENT switch EXCLUDE_FROM_ALL)
install(FILES "${peel_service_folder}/peelreduce-switch.service" DESTINATION /lib/systemd/system ${peel_service})
install(FILES packaging/switch/switch.conf DESTINATION /etc/peelreduce ${peel_service})
install(FILES packaging/switch/xdp.conf DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/peelreduce-switch/examples ${peel_service})

# Each package has its licence and, compressed as Debian wants it, what changed.
set(peel_changelogs "${peel_service_folder}/changelog.gz" "${peel_service_folder}/changelog.Debian.gz")
foreach(pair IN ITEMS "CHANGELOG.md;changelog.gz" "packaging/debian/changelog;changelog.Debian.gz")
  list(GET pair 0 text)
  list(GET pair 1 name)
  execute_process(COMMAND "${PEEL_GZIP}" -9nc "${PROJECT_SOURCE_DIR}/${text}"
    OUTPUT_FILE "${peel_service_folder}/${name}" COMMAND_ERROR_IS_FATAL ANY)
endforeach()
foreach(package IN ITEMS "peel;peel" "dev;libpeelreduce-dev" "switch;peelreduce-switch")
  list(GET package 0 component)
  list(GET package 1 name)
  install(FILES packaging/debian/copyright ${peel_changelogs} DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${name}
    COMPONENT ${component} EXCLUDE_FROM_ALL)
endforeach()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME peelreduce)
set(CPACK_PACKAGE_VENDOR "The PeelReduce authors")
set(CPACK_PACKAGE_CONTACT "The PeelReduce authors <peelreduce@users.noreply.github.com>")
set(CPACK_PACKAGE_HOMEPAGE_URL "${PROJECT_HOMEPAGE_URL}")
set(CPACK_PACKAGE_DIRECTORY "${PROJECT_BINARY_DIR}/packages")
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL peel dev switch)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_PRE_BUILD_SCRIPTS "${PROJECT_SOURCE_DIR}/packaging/debian/prepare.cmake")
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

# Paragraphs of a description: CPack indents them, and Debian wants a dot on empty lines, which there are none of.
set(CPACK_DEBIAN_PEEL_PACKAGE_NAME peel)
set(CPACK_DEBIAN_PEEL_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_PEEL_DESCRIPTION "lossless homomorphic compression of sparse gradients
The program of PeelReduce, which all-reduces sparse gradients in a fraction
of the bytes. It encodes arrays, merges messages without decoding them and
decodes sums; it predicts and measures what a model or a network would gain,
and it is the switch that adds messages in the network.
Parts that need MPI, NCCL or libbpf are loaded when they are asked for.")

set(CPACK_DEBIAN_DEV_PACKAGE_NAME libpeelreduce-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "libc6-dev, libstdc++-12-dev | libstdc++-dev")
if(PEEL_WITH_HIGHWAY)
  string(APPEND CPACK_DEBIAN_DEV_PACKAGE_DEPENDS ", libhwy-dev")
endif()
set(CPACK_DEBIAN_DEV_PACKAGE_SUGGESTS "cmake, libopenmpi-dev")
set(CPACK_DEBIAN_DEV_DESCRIPTION "all-reduce of sparse gradients, lossless (C++ library)
PeelReduce all-reduces sparse gradients in a fraction of the bytes and gets
every element of the sum back.
This package has the headers, the static libraries and the CMake package.")

set(CPACK_DEBIAN_SWITCH_PACKAGE_NAME peelreduce-switch)
set(CPACK_DEBIAN_SWITCH_PACKAGE_SECTION net)
set(CPACK_DEBIAN_SWITCH_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_SWITCH_PACKAGE_DEPENDS "peel (>= ${PROJECT_VERSION}), adduser")
set(CPACK_DEBIAN_SWITCH_PACKAGE_RECOMMENDS "libbpf1")
set(CPACK_DEBIAN_SWITCH_PACKAGE_SUGGESTS "ethtool, openssl")
set(CPACK_DEBIAN_SWITCH_PACKAGE_CONTROL_EXTRA
  "${PROJECT_SOURCE_DIR}/packaging/debian/conffiles"
  "${PROJECT_SOURCE_DIR}/packaging/debian/postinst"
  "${PROJECT_SOURCE_DIR}/packaging/debian/prerm"
  "${PROJECT_SOURCE_DIR}/packaging/debian/postrm")
set(CPACK_DEBIAN_SWITCH_DESCRIPTION "in-network aggregator of PeelReduce, as a service
Runs the switch of PeelReduce, which adds and ORs messages of sparse gradients
on the path between workers, so that each worker sends and receives them once.
Libbpf is needed for the plane in the kernel (XDP).")

include(CPack)
