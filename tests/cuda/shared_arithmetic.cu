#include "cuda/shared_arithmetic.h"

namespace peel::testing {

namespace {

constexpr unsigned kThreads = 256;

__global__ void compute_all(Arithmetic what, const std::uint64_t* words, std::uint64_t* results, std::uint64_t count) {
  const std::uint64_t i = std::uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count) results[i] = compute(what, words[i], words[count - 1 - i]);
}

}  // namespace

cudaError_t compute_on_device(Arithmetic what, const std::uint64_t* words, std::uint64_t* results, std::uint64_t count,
                              cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((count + kThreads - 1) / kThreads);
  compute_all<<<blocks, kThreads, 0, stream>>>(what, words, results, count);
  return cudaGetLastError();
}

}  // namespace peel::testing
