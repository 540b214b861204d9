// into |= the parts of all other workers.
//
// Grid: one thread for 16 bytes of `into`, in steps of the grid where there are more. A thread reads its 16 bytes of
// every part, so each byte is read once and written once: workers + 1 times the length of a part moves through memory,
// which is the least possible. No shared memory, no barrier: threads share nothing.
//
// The alternative, one launch per worker, would read and write `into` for each of them.
#include "transport/nccl/or_words.h"

namespace peel::detail {
namespace {

constexpr unsigned kThreads = 256;
constexpr std::size_t kMaxBlocks = 1024;  // about what an H200 holds at once: 132 multiprocessors of 8 such blocks

__global__ void or_parts(ulonglong2* into, const ulonglong2* parts, std::size_t part, unsigned workers,
                         unsigned except) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < part; i += step) {
    ulonglong2 sum = into[i];
    for (unsigned w = 0; w < workers; ++w) {
      if (w == except) continue;
      const ulonglong2 other = parts[w * part + i];
      sum.x |= other.x;
      sum.y |= other.y;
    }
    into[i] = sum;
  }
}

}  // namespace

cudaError_t or_words(std::byte* into, const std::byte* parts, std::size_t part_bytes, unsigned workers, unsigned except,
                     cudaStream_t stream) noexcept {
  const std::size_t part = part_bytes / sizeof(ulonglong2);
  if (part == 0 || workers < 2) return cudaSuccess;
  const std::size_t blocks = (part + kThreads - 1) / kThreads;
  cudaLaunchConfig_t launch{};
  launch.gridDim = static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks);
  launch.blockDim = kThreads;
  launch.stream = stream;
  return cudaLaunchKernelEx(&launch, or_parts, reinterpret_cast<ulonglong2*>(into),
                            reinterpret_cast<const ulonglong2*>(parts), part, workers, except);
}

cudaError_t prepare_or_words() noexcept {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, or_parts);
}

}  // namespace peel::detail
