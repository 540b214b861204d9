#include "cli/nccl_workers.h"

#include "cli/module.h"

namespace peel::cli {

const NcclModule& load_nccl() {
  return load<NcclModule>({.name = "nccl",
                           .part = "the transport nccl",
                           .library = "NCCL",
                           .install = "install libnccl2 of NVIDIA's packages",
                           .build = "nvcc and libnccl-dev",
                           .instead = "use --transport inprocess or mpi"});
}

NcclWorkers::NcclWorkers(unsigned workers) : session_(load_nccl().start(workers)) {}

}  // namespace peel::cli
