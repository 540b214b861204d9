// Launches a kernel with one thread for each of `count` indexes, in steps of the grid where there are more.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <utility>

namespace peel::detail {

// The indexes of a thread: for (i = first_index(); i < count; i += index_step()).
__device__ inline std::size_t first_index() { return std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ inline std::size_t index_step() { return std::size_t{gridDim.x} * blockDim.x; }

// Returns what the launch returned.
template <typename... Parameters, typename... Arguments>
cudaError_t launch_for_each(std::size_t count, cudaStream_t stream, void (*kernel)(Parameters...),
                            Arguments&&... arguments) noexcept {
  constexpr unsigned kThreads = 256;
  constexpr std::size_t kMaxBlocks = 1024;  // about what an H200 holds at once: 132 multiprocessors of 8 such blocks
  if (count == 0) return cudaSuccess;
  const std::size_t blocks = (count + kThreads - 1) / kThreads;
  cudaLaunchConfig_t launch{};
  launch.gridDim = static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks);
  launch.blockDim = kThreads;
  launch.stream = stream;
  return cudaLaunchKernelEx(&launch, kernel, std::forward<Arguments>(arguments)...);
}

}  // namespace peel::detail
