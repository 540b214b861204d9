// What a kernel may use on the current device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace peel::cuda::detail {

// Of the GPU that the choices here were measured on, an H200; others take the same, and differ by how well they do.
inline constexpr std::uint32_t kMultiprocessors = 132;

// The most that a thread block of the current device can ask for.
inline cudaError_t shared_limit(std::size_t& bytes) {
  int device = 0;
  int limit = 0;
  cudaError_t code = cudaGetDevice(&device);
  if (code == cudaSuccess) code = cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  bytes = static_cast<std::size_t>(limit);
  return code;
}

// A thread block gets more than 48 KiB of shared memory, what the kernel declares itself included, only when its kernel
// was told so, on each device. It is told the most there is rather than what one launch needs: threads that launch it
// with different sizes would otherwise take the room from each other in between. Telling it again is allowed while a
// stream is captured.
template <typename Kernel>
cudaError_t allow_shared(Kernel* kernel) {
  const auto* const function = reinterpret_cast<const void*>(kernel);
  cudaFuncAttributes about{};
  cudaError_t code = cudaFuncGetAttributes(&about, function);
  std::size_t limit = 0;
  if (code == cudaSuccess) code = shared_limit(limit);
  if (code != cudaSuccess) return code;
  const int most = static_cast<int>(limit - about.sharedSizeBytes);
  if (about.maxDynamicSharedSizeBytes == most) return cudaSuccess;
  return cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, most);
}

}  // namespace peel::cuda::detail
