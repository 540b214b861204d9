#include "cli/gpus.h"

#include "cli/module.h"

namespace peel::cli {

const CudaModule& load_cuda() {
  return load<CudaModule>({.name = "cuda",
                           .part = "the backend cuda",
                           .library = "the C++ library that it was built with",
                           .install = "install a package of peel that was built on this system",
                           .build = "nvcc",
                           .instead = "use --backend cpu"});
}

}  // namespace peel::cli
