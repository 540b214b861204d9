# Modules of the program: what needs a library that a machine may lack is a file of its own, peel-NAME.so, that peel loads
# when it is asked for (src/cli/module.h). A module is made of the objects of a library of ours and of src/cli/NAME; all
# else it takes from the program, which exports its symbols and holds the whole library, so there is one copy of it.
file(RELATIVE_PATH peel_modules_from_program
  "/prefix/${CMAKE_INSTALL_BINDIR}" "/prefix/${CMAKE_INSTALL_LIBDIR}/peelreduce")
set_source_files_properties(src/cli/module.cpp PROPERTIES
  COMPILE_DEFINITIONS "PEEL_MODULES_FROM_PROGRAM=\"${peel_modules_from_program}\"")
target_link_libraries(peel PRIVATE ${CMAKE_DL_LIBS})
set_target_properties(peel PROPERTIES ENABLE_EXPORTS ON)
# All objects, since a linker takes from an archive only those that the program itself uses.
if(NOT BUILD_SHARED_LIBS)
  target_sources(peel PRIVATE $<TARGET_OBJECTS:peelreduce>)
endif()
if(TARGET peel_switch)
  target_sources(peel PRIVATE $<TARGET_OBJECTS:peel_switch>)
endif()

# peel_add_module(NAME OBJECTS library... LIBRARIES library...): LIBRARIES are what the machine must have.
function(peel_add_module name)
  cmake_parse_arguments(PARSE_ARGV 1 module "" "" "OBJECTS;LIBRARIES")
  file(GLOB sources CONFIGURE_DEPENDS src/cli/${name}/*.cpp src/cli/${name}/*.cu)
  set(target peel_module_${name})
  add_library(${target} MODULE ${sources})
  foreach(library IN LISTS module_OBJECTS)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${library}>)
  endforeach()
  target_include_directories(${target} PRIVATE include src)
  target_compile_definitions(${target} PRIVATE PEEL_VERSION="${PROJECT_VERSION}")
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${peel_strict_warnings}>"
    "$<$<COMPILE_LANGUAGE:CUDA>:${peel_cuda_options}>")
  target_link_libraries(${target} PRIVATE
    CLI11::CLI11 fmt::fmt nlohmann_json::nlohmann_json Threads::Threads ${module_LIBRARIES})
  # The runtime of CUDA is part of a module, and loads the driver itself; the library leaves it to whoever links it.
  set_target_properties(${target} PROPERTIES
    PREFIX "" OUTPUT_NAME peel-${name} CUDA_RUNTIME_LIBRARY Static
    LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/modules")
  set_property(GLOBAL APPEND PROPERTY PEEL_MODULES ${target})
endfunction()

if(TARGET peelreduce_mpi)
  peel_add_module(mpi OBJECTS peelreduce_mpi LIBRARIES MPI::MPI_CXX)
  target_compile_definitions(peel_module_mpi PRIVATE OMPI_SKIP_MPICXX=1 MPICH_SKIP_MPICXX=1)
endif()
if(TARGET peelreduce_cuda)
  peel_add_module(cuda OBJECTS peelreduce_cuda LIBRARIES CUDA::cudart_static)
endif()
if(TARGET peelreduce_nccl AND NCCL_LIBRARY)
  peel_add_module(nccl OBJECTS peelreduce_cuda peelreduce_nccl LIBRARIES NCCL::nccl CUDA::cudart_static)
endif()
if(PEEL_WITH_XDP)
  peel_add_module(xdp OBJECTS peel_switch_xdp LIBRARIES "${PEEL_LIBBPF}")
  target_include_directories(peel_module_xdp SYSTEM PRIVATE "${PEEL_LIBBPF_INCLUDE_DIR}")
endif()
get_property(peel_modules GLOBAL PROPERTY PEEL_MODULES)
