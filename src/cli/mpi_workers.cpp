#include "cli/mpi_workers.h"

#include <cstdlib>

#include "cli/module.h"

namespace peel::cli {

const MpiModule& load_mpi() {
  return load<MpiModule>({.name = "mpi",
                          .part = "the transport mpi",
                          .library = "the MPI that it was built with",
                          .install = "install that (Open MPI is in the package openmpi-bin)",
                          .build = "an MPI such as libopenmpi-dev",
                          .instead = "use --transport inprocess"});
}

MpiWorkers::MpiWorkers() : session_(load_mpi().start()) {}

bool under_mpirun() {
  for (const char* sign : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"}) {
    if (std::getenv(sign) != nullptr) return true;
  }
  return false;
}

}  // namespace peel::cli
