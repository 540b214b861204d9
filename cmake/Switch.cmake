# The transport over a switch needs nothing but Linux's sockets, so it is in the library itself: whoever has that, Python
# among them, has the transport. peel_switch is the switch, for the program and the tests; it is not installed.
if(PEEL_SWITCH AND CMAKE_SYSTEM_NAME STREQUAL "Linux")
  file(GLOB peel_worker_sources CONFIGURE_DEPENDS src/switch/wire/*.cpp src/switch/net/*.cpp src/transport/switch/*.cpp)
  if(NOT PEEL_BUILT)
    target_sources(peelreduce PRIVATE ${peel_worker_sources})
  endif()
  list(APPEND peel_transports switch)

  file(GLOB peel_switch_sources CONFIGURE_DEPENDS src/switch/core/*.cpp src/switch/control/*.cpp
    src/switch/udp/*.cpp)
  add_library(peel_switch STATIC EXCLUDE_FROM_ALL ${peel_switch_sources})
  target_include_directories(peel_switch PRIVATE src)
  target_compile_options(peel_switch PRIVATE ${peel_strict_warnings})
  target_link_libraries(peel_switch PUBLIC peelreduce)
  include(Xdp)
endif()
