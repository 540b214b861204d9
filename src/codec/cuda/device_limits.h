// What a kernel may use on the current device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace peel::cuda::detail {

// A thread block gets more than 48 KiB of shared memory, what the kernel declares itself included, only when its kernel
// was told so, on each device. Telling it again is allowed while a stream is captured.
template <typename Kernel>
cudaError_t allow_shared(Kernel* kernel, std::size_t bytes) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(bytes));
}

// The most that a thread block of the current device can ask for.
inline cudaError_t shared_limit(std::size_t& bytes) {
  int device = 0;
  int limit = 0;
  cudaError_t code = cudaGetDevice(&device);
  if (code == cudaSuccess) code = cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  bytes = static_cast<std::size_t>(limit);
  return code;
}

}  // namespace peel::cuda::detail
