// All-reduces of arrays in device memory over NCCL, with sums known exactly.
#pragma once

#include "device_mirror.h"
#include "peel/communicator.h"

namespace peel::testing {

// What a worker checks with.
struct Desk {
  Communicator& nccl;
  Communicator& host;  // between the same workers, over inprocess: what sums in host memory give
  Mirror& mirror;      // on the stream of `nccl`
  cudaStream_t other;  // sums are read from this one, without waiting for that of `nccl`
};

// One worker's part.
void check_device_allreduces(const Desk& desk);

}  // namespace peel::testing
