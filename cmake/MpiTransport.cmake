# peelreduce_mpi: the transport over MPI, where MPI is found.
set(PEEL_WITH_MPI OFF)
if(PEEL_MPI)
  enable_language(C)  # without it, CMake does not look for MPI's C interface, the only one that lasts
  set(MPI_CXX_SKIP_MPICXX ON)  # the C interface is all we use
  find_package(MPI QUIET COMPONENTS CXX)
endif()
file(GLOB peel_mpi_sources CONFIGURE_DEPENDS src/transport/mpi/*.cpp)
if(PEEL_MPI AND MPI_CXX_FOUND AND peel_mpi_sources)
  add_library(peelreduce_mpi ${peel_mpi_sources})
  add_library(peelreduce::mpi ALIAS peelreduce_mpi)
  set_target_properties(peelreduce_mpi PROPERTIES EXPORT_NAME mpi VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  target_sources(peelreduce_mpi PUBLIC FILE_SET HEADERS BASE_DIRS include FILES include/peel/mpi.h)
  target_include_directories(peelreduce_mpi PRIVATE src)
  target_compile_definitions(peelreduce_mpi PUBLIC OMPI_SKIP_MPICXX=1 MPICH_SKIP_MPICXX=1)
  target_compile_options(peelreduce_mpi PRIVATE ${peel_strict_warnings})
  target_link_libraries(peelreduce_mpi PUBLIC peelreduce MPI::MPI_CXX)
  set(PEEL_WITH_MPI ON)
  list(APPEND peel_transports mpi)
  list(APPEND peel_libraries_to_install peelreduce_mpi)
endif()
