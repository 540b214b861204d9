# cpack runs this when the files of all packages lie in their folders and none is packed yet.
#
# Debian wants manuals compressed.
file(GLOB_RECURSE peel_manuals "${CPACK_TEMPORARY_DIRECTORY}/peel/usr/share/man/*.1")
foreach(manual IN LISTS peel_manuals)
  execute_process(COMMAND gzip -9nf "${manual}" COMMAND_ERROR_IS_FATAL ANY)
endforeach()

# CPack would put the project's summary before the description of every package, which has its own.
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")

# What peel itself is linked with becomes Depends; what only its modules are linked with becomes Suggests, since peel runs
# without them.
find_program(PEEL_SHLIBDEPS dpkg-shlibdeps)
if(NOT PEEL_SHLIBDEPS)
  message(FATAL_ERROR "dpkg-shlibdeps was not found, which tells what the packages depend on; install dpkg-dev.")
endif()

file(GLOB_RECURSE peel_programs "${CPACK_TEMPORARY_DIRECTORY}/peel/usr/bin/peel")
file(GLOB_RECURSE peel_modules "${CPACK_TEMPORARY_DIRECTORY}/peel/usr/lib/*/peel-*.so")
if(NOT peel_programs)
  message(FATAL_ERROR "There is no usr/bin/peel below ${CPACK_TEMPORARY_DIRECTORY}/peel; configure with "
                      "-DCMAKE_INSTALL_PREFIX=/usr, as the preset `package` does.")
endif()
set(peel_words -dDepends)
foreach(file IN LISTS peel_programs)
  list(APPEND peel_words -e${file})
endforeach()
list(APPEND peel_words -dSuggests)
foreach(file IN LISTS peel_modules)
  list(APPEND peel_words -e${file})
endforeach()

# It reads the name of a package from debian/control.
set(peel_folder "${CPACK_TEMPORARY_DIRECTORY}/shlibdeps")
file(WRITE "${peel_folder}/debian/control" "Source: peelreduce\n\nPackage: peel\nArchitecture: any\n")
# Libraries that no package owns, such as an NCCL beside the CUDA toolkit, are named below.
execute_process(COMMAND "${PEEL_SHLIBDEPS}" -O --ignore-missing-info --warnings=0 ${peel_words}
  WORKING_DIRECTORY "${peel_folder}" OUTPUT_VARIABLE peel_found COMMAND_ERROR_IS_FATAL ANY)
file(REMOVE_RECURSE "${peel_folder}")

function(peel_field name result)
  string(REGEX MATCH "shlibs:${name}=([^\n]*)" ignored "${peel_found}")
  set(${result} "${CMAKE_MATCH_1}" PARENT_SCOPE)
endfunction()
peel_field(Depends CPACK_DEBIAN_PEEL_PACKAGE_DEPENDS)
peel_field(Suggests peel_suggested)
if(peel_modules MATCHES "peel-mpi" AND peel_suggested MATCHES "openmpi")
  list(APPEND peel_suggested "openmpi-bin")  # mpirun
endif()
if(peel_modules MATCHES "peel-nccl" AND NOT peel_suggested MATCHES "nccl")
  list(APPEND peel_suggested "libnccl2")
endif()
list(JOIN peel_suggested ", " CPACK_DEBIAN_PEEL_PACKAGE_SUGGESTS)
