// A kernel that lets the next one on its stream begin at once, and writes only a while later.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace peel::testing {

// Copies `bytes` from one place on the device to another, after 200 us.
cudaError_t write_late(const void* from, void* to, std::size_t bytes, cudaStream_t stream);

}  // namespace peel::testing
