// Grid: as many threads as fill a GPU look for the largest magnitude, as an integer: bits of a float without its sign
// order as magnitudes do, NaN and infinity above all. Then one thread writes the words.
#include <cub/block/block_reduce.cuh>

#include "allreduce/cuda/vitals.h"
#include "allreduce/vital_words.h"
#include "allreduce/vitals.h"
#include "codec/cuda/conversion.cuh"
#include "codec/cuda/element_bits.cuh"

namespace peel::cuda::detail {

namespace {

constexpr unsigned kThreadsEach = 256;
constexpr unsigned kBlocks = 1056;  // eight for each multiprocessor of an H200

struct Larger {
  __device__ std::uint64_t operator()(std::uint64_t a, std::uint64_t b) const { return a > b ? a : b; }
};

template <typename Bits>
__global__ void __launch_bounds__(kThreadsEach)
    find_largest(const Bits* __restrict__ x, std::uint64_t count, unsigned long long* largest) {
  using Reduce = cub::BlockReduce<std::uint64_t, kThreadsEach>;
  __shared__ typename Reduce::TempStorage shared;
  constexpr Bits kMagnitude = static_cast<Bits>(~Bits{0}) >> 1;
  Bits own = 0;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * kThreadsEach + threadIdx.x; i < count;
       i += std::uint64_t{gridDim.x} * kThreadsEach) {
    const auto magnitude = static_cast<Bits>(load_once(x + i) & kMagnitude);
    if (magnitude > own) own = magnitude;
  }
  const std::uint64_t all = Reduce(shared).Reduce(std::uint64_t{own}, Larger{});
  if (threadIdx.x == 0 && all != 0) atomicMax(largest, static_cast<unsigned long long>(all));
}

__global__ void write_words(ElementType type, const Status* status, const std::uint64_t* largest,
                            std::uint64_t* words) {
  for (std::size_t w = 0; w < peel::detail::kVitalWords; ++w) words[w] = 0;
  if (status->items != 0) words[0] = std::uint64_t{1} << peel::detail::count_bit(status->items);
  if (*largest == 0) return;
  const double value = widen_bits(*largest, type);
  if (!isfinite(value)) {
    words[0] |= peel::detail::kNotFiniteBit;
    return;
  }
  const int bit = peel::detail::magnitude_bit(type, ilogb(value) + 1);
  words[1 + bit / 64] = std::uint64_t{1} << (bit % 64);
}

}  // namespace

cudaError_t write_vitals(ElementType type, const void* x, std::uint64_t count, const Status* status,
                         std::uint64_t* largest, std::uint64_t* words, cudaStream_t stream) {
  const cudaError_t code = cudaMemsetAsync(largest, 0, sizeof(std::uint64_t), stream);
  if (code != cudaSuccess) return code;
  if (count != 0 && type < ElementType::int8) {
    const std::uint64_t blocks = (count + kThreadsEach - 1) / kThreadsEach;
    with_bits(type, [&](auto bits) {
      find_largest<<<static_cast<unsigned>(blocks < kBlocks ? blocks : kBlocks), kThreadsEach, 0, stream>>>(
          static_cast<const decltype(bits)*>(x), count, reinterpret_cast<unsigned long long*>(largest));
    });
  }
  write_words<<<1, 1, 0, stream>>>(type, status, largest, words);
  return cudaGetLastError();
}

}  // namespace peel::cuda::detail
