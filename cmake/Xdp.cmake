# The plane of the switch that runs in the kernel. clang makes the eBPF program, bpftool makes a header of it, so that the
# program is part of the module xdp of peel, and libbpf loads it.
set(PEEL_WITH_XDP OFF)
if(PEEL_XDP)
  find_program(PEEL_BPF_CLANG NAMES clang clang-19 clang-18 clang-17 clang-16 clang-15 clang-14
    DOC "The clang that compiles the eBPF program")
  find_program(PEEL_BPFTOOL bpftool PATHS /usr/sbin /usr/local/sbin DOC "What makes a header of the eBPF program")
  find_library(PEEL_LIBBPF bpf DOC "What loads the eBPF program")
  find_path(PEEL_LIBBPF_INCLUDE_DIR bpf/bpf_helpers.h DOC "Where bpf/bpf_helpers.h is")
  mark_as_advanced(PEEL_BPF_CLANG PEEL_BPFTOOL PEEL_LIBBPF PEEL_LIBBPF_INCLUDE_DIR)
endif()

set(peel_xdp_folder "${PROJECT_BINARY_DIR}/xdp")
set(peel_xdp_object "${peel_xdp_folder}/aggregate.bpf.o")
set(peel_xdp_skeleton "${peel_xdp_folder}/xdp_skeleton.h")
# The kernel's headers are where the compiler of this machine finds them; clang does not look there for eBPF.
set(peel_xdp_system "")
if(CMAKE_LIBRARY_ARCHITECTURE)
  set(peel_xdp_system -idirafter "/usr/include/${CMAKE_LIBRARY_ARCHITECTURE}")
endif()
set(peel_xdp_compile "${PEEL_BPF_CLANG}" -O2 -g -target bpf -mcpu=v3 -ffreestanding -Wall -Wextra
  -I "${PROJECT_SOURCE_DIR}/src" -idirafter "${PEEL_LIBBPF_INCLUDE_DIR}" ${peel_xdp_system}
  -c "${PROJECT_SOURCE_DIR}/src/switch/xdp/aggregate.bpf.c")
if(PEEL_WERROR)
  list(APPEND peel_xdp_compile -Werror)
endif()

# Tools that are there may still not work: bpftool is a wrapper that wants the one of the running kernel on Ubuntu, clang
# may know no eBPF, and libbpf before 1.0 is another library. Sets `why` to what is missing; empty: nothing.
function(peel_why_no_xdp why)
  set(${why} "" PARENT_SCOPE)
  foreach(needed PEEL_BPF_CLANG PEEL_BPFTOOL PEEL_LIBBPF PEEL_LIBBPF_INCLUDE_DIR)
    if(NOT ${needed})
      set(${why} "It needs clang, libbpf-dev and bpftool" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  set(version_file "${PEEL_LIBBPF_INCLUDE_DIR}/bpf/libbpf_version.h")
  set(major "")
  if(EXISTS "${version_file}")
    file(STRINGS "${version_file}" major REGEX "define LIBBPF_MAJOR_VERSION [0-9]+")
    string(REGEX REPLACE ".* ([0-9]+).*" "\\1" major "${major}")
  endif()
  if(NOT major GREATER_EQUAL 1)
    set(${why} "It needs libbpf 1.0 or later" PARENT_SCOPE)
    return()
  endif()
  file(MAKE_DIRECTORY "${peel_xdp_folder}")
  set(trial "${peel_xdp_folder}/trial.bpf.o")
  execute_process(COMMAND ${peel_xdp_compile} -o "${trial}" RESULT_VARIABLE failed OUTPUT_QUIET ERROR_VARIABLE said)
  if(failed AND PEEL_WERROR)
    message(FATAL_ERROR "The eBPF program of the switch does not compile:\n${said}")
  elseif(failed)
    file(WRITE "${peel_xdp_folder}/trial.log" "${said}")
    set(${why} "${PEEL_BPF_CLANG} does not compile its program; see xdp/trial.log in the build folder" PARENT_SCOPE)
    return()
  endif()
  foreach(words "version" "gen;skeleton;${trial};name;peel_xdp")
    execute_process(COMMAND "${PEEL_BPFTOOL}" ${words} RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
    if(failed)
      set(${why} "${PEEL_BPFTOOL} is there but does not work" PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

if(PEEL_XDP)
  peel_why_no_xdp(peel_xdp_missing)
  if(peel_xdp_missing)
    message(STATUS "peel: the switch in the kernel is left out. ${peel_xdp_missing}.")
  else()
    set(PEEL_WITH_XDP ON)
  endif()
endif()

if(NOT PEEL_WITH_XDP)
  return()
endif()

file(GLOB peel_xdp_headers CONFIGURE_DEPENDS src/switch/xdp/*.h)
add_custom_command(OUTPUT "${peel_xdp_skeleton}"
  COMMAND ${peel_xdp_compile} -o "${peel_xdp_object}"
  COMMAND "${PEEL_BPFTOOL}" gen skeleton "${peel_xdp_object}" name peel_xdp > "${peel_xdp_skeleton}"
  DEPENDS src/switch/xdp/aggregate.bpf.c ${peel_xdp_headers}
    src/switch/core/slot.h src/switch/wire/siphash.h src/switch/wire/wire.h
  COMMENT "Compiling the eBPF program of the switch" VERBATIM)
file(GLOB peel_xdp_sources CONFIGURE_DEPENDS src/switch/xdp/*.cpp)
add_library(peel_switch_xdp STATIC EXCLUDE_FROM_ALL ${peel_xdp_sources} "${peel_xdp_skeleton}")
target_include_directories(peel_switch_xdp PRIVATE src)
target_include_directories(peel_switch_xdp SYSTEM PRIVATE "${peel_xdp_folder}" "${PEEL_LIBBPF_INCLUDE_DIR}")
target_compile_options(peel_switch_xdp PRIVATE ${peel_strict_warnings})
target_link_libraries(peel_switch_xdp PUBLIC peel_switch "${PEEL_LIBBPF}")
