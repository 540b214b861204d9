# PEEL_SANITIZE, a list such as "address;undefined", instruments everything that is compiled here: sanitizers see a bug
# only in code they instrumented, so the library, the tests and the program all get the same flags.
if(NOT PEEL_SANITIZE)
  return()
endif()

list(JOIN PEEL_SANITIZE "," peel_sanitizers)
add_compile_options(-fsanitize=${peel_sanitizers} -fno-sanitize-recover=all -fno-omit-frame-pointer)
add_link_options(-fsanitize=${peel_sanitizers})
add_compile_definitions(PEEL_SANITIZED=1)

# What the tests' environment needs under a sanitizer.
set(PEEL_TEST_ENVIRONMENT "PEEL_SANITIZED=1")
if("address" IN_LIST PEEL_SANITIZE)
  # An allocation that cannot succeed returns null, as without the sanitizer: hostile sizes are tested that way.
  list(APPEND PEEL_TEST_ENVIRONMENT
    "ASAN_OPTIONS=allocator_may_return_null=1:detect_stack_use_after_return=1"
    "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/cmake/leaks.supp:print_suppressions=0"
    "UBSAN_OPTIONS=print_stacktrace=1")
endif()
if("thread" IN_LIST PEEL_SANITIZE)
  # The OpenMP runtime is not instrumented, so its barriers look like races. Archer, which comes with LLVM's runtime,
  # tells the sanitizer about them.
  list(APPEND PEEL_TEST_ENVIRONMENT
    "TSAN_OPTIONS=ignore_noninstrumented_modules=1:halt_on_error=1:second_deadlock_stack=1")
  string(REGEX MATCH "^[0-9]+" peel_llvm_major "${CMAKE_CXX_COMPILER_VERSION}")
  find_library(PEEL_ARCHER archer
    PATHS /usr/lib/llvm-${peel_llvm_major}/lib
    DOC "libarcher.so, which explains OpenMP to the thread sanitizer")
  if(PEEL_ARCHER)
    list(APPEND PEEL_TEST_ENVIRONMENT "OMP_TOOL_LIBRARIES=${PEEL_ARCHER}")
  else()
    message(WARNING "libarcher.so was not found (package libomp-dev): the thread sanitizer will take every OpenMP "
                    "barrier for a race.")
  endif()
endif()
