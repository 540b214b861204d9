#include "cli/nccl/differences.h"

namespace peel::cli {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kBlocks = 1024;  // some for every multiprocessor of any GPU of today
constexpr std::size_t kPiece = sizeof(uint4);

// Grid: any. Each thread compares every so many pieces, and thread 0 the rest of the array, which is shorter than one.
__global__ void __launch_bounds__(kThreads)
    compare(const unsigned char* a, const unsigned char* b, std::size_t bytes, unsigned long long* differences) {
  const std::size_t pieces = bytes / kPiece;
  const std::size_t first = blockIdx.x * std::size_t{kThreads} + threadIdx.x;
  unsigned long long found = 0;
  for (std::size_t i = first; i < pieces; i += std::size_t{kThreads} * gridDim.x) {
    const uint4 p = reinterpret_cast<const uint4*>(a)[i];
    const uint4 q = reinterpret_cast<const uint4*>(b)[i];
    if (p.x != q.x || p.y != q.y || p.z != q.z || p.w != q.w) ++found;
  }
  if (first == 0) {
    bool differs = false;
    for (std::size_t i = pieces * kPiece; i < bytes; ++i) differs |= a[i] != b[i];
    if (differs) ++found;
  }
  if (found != 0) atomicAdd(differences, found);
}

}  // namespace

cudaError_t count_differences(const void* a, const void* b, std::size_t bytes, unsigned long long* differences,
                              cudaStream_t stream) {
  const cudaError_t cleared = cudaMemsetAsync(differences, 0, sizeof *differences, stream);
  if (cleared != cudaSuccess) return cleared;
  compare<<<kBlocks, kThreads, 0, stream>>>(static_cast<const unsigned char*>(a), static_cast<const unsigned char*>(b),
                                            bytes, differences);
  return cudaGetLastError();
}

}  // namespace peel::cli
