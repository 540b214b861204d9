# What shells complete: the program prints it from its own options, when it is installed. A program for another machine
# cannot be asked.
if(CMAKE_CROSSCOMPILING)
  message(STATUS "peel: completions for shells are left out, since the program does not run here.")
  return()
endif()
file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/completions")
function(peel_install_completion shell folder file)
  set(script "${PROJECT_BINARY_DIR}/completions/${file}")
  install(CODE "execute_process(COMMAND \"$<TARGET_FILE:peel>\" completion ${shell}
    OUTPUT_FILE \"${script}\" COMMAND_ERROR_IS_FATAL ANY)")
  install(FILES "${script}" DESTINATION "${CMAKE_INSTALL_DATADIR}/${folder}")
endfunction()
peel_install_completion(bash bash-completion/completions peel)
peel_install_completion(zsh zsh/site-functions _peel)
peel_install_completion(fish fish/vendor_completions.d peel.fish)
