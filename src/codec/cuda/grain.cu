// count_grains: the non-empty grains at every grain and phase, on the windows that best_grain looks at.
//
// Grid: a thread block for each window: 16,384 positions where a grain may start and the 1,024 after them, as bits in
// shared memory. Dilating them doubles the grain; then thread p counts the phases p, p + threads ... of that grain. The
// counts of all windows are added up in device memory.
#include "codec/cuda/element_bits.cuh"
#include "codec/cuda/tiles.cuh"
#include "codec/grain_windows.h"

namespace peel::cuda::detail {

namespace {

using peel::detail::kGrainLead;
using peel::detail::kGrainWindow;
using peel::detail::window_start;

static_assert(kGrainCounts == peel::detail::kGrainCountsInAll);

constexpr unsigned kHalves = (kGrainWindow + 1024) / 32;
constexpr unsigned kWindowHalves = kGrainWindow / 32;

__device__ std::uint32_t bits_from(const std::uint32_t* bits, unsigned half, unsigned distance) {
  const unsigned far = half + distance / 32;
  const unsigned shift = distance % 32;
  const std::uint32_t here = far < kHalves ? bits[far] : 0;
  const std::uint32_t after = far + 1 < kHalves ? bits[far + 1] : 0;
  return shift == 0 ? here : here >> shift | after << (32 - shift);
}

template <typename Bits>
__global__ void __launch_bounds__(kThreads)
    count_windows(const Bits* x, std::uint64_t elements, Limits limits, std::uint64_t windows, std::uint64_t taken,
                  unsigned long long* counts) {
  __shared__ std::uint32_t bits[2][kHalves];
  const unsigned lane = threadIdx.x & 31;
  const std::uint64_t start = window_start(blockIdx.x, windows, taken);
  const auto magnitude = static_cast<Bits>(limits.mask);
  const auto zero = static_cast<Bits>(limits.zero);
  bool any = false;
  for (unsigned half = threadIdx.x >> 5; half < kHalves; half += kWarps) {
    const std::uint64_t element = start + half * 32 + lane - kGrainLead;  // wraps before the array
    const bool set = element<elements&& static_cast<Bits>(x[element] & magnitude)> zero;
    const std::uint32_t word = __ballot_sync(kAll, set);
    if (lane == 0) bits[0][half] = word;
    any |= word != 0;
  }
  if (__syncthreads_or(any) == 0) return;

  unsigned now = 0;
  for (unsigned grain = 1; grain <= 1024; grain *= 2, now ^= 1) {
    const std::uint32_t* seen = bits[now];
    if (grain < 32) {  // every word has all phases: count each of them in all words
      for (unsigned phase = threadIdx.x >> 5; phase < grain; phase += kWarps) {
        std::uint32_t mask = 0;
        for (unsigned b = phase; b < 32; b += grain) mask |= 1u << b;
        std::uint32_t found = 0;
        for (unsigned half = lane; half < kWindowHalves; half += 32) found += __popc(seen[half] & mask);
        found = __reduce_add_sync(kAll, found);
        if (lane == 0 && found != 0) atomicAdd(counts + grain - 1 + phase, found);
      }
    } else {  // a phase is one bit of every (grain / 32)-th word
      for (unsigned phase = threadIdx.x; phase < grain; phase += kThreads) {
        std::uint32_t found = 0;
        for (unsigned half = phase / 32; half < kWindowHalves; half += grain / 32)
          found += seen[half] >> (phase % 32) & 1;
        if (found != 0) atomicAdd(counts + grain - 1 + phase, found);
      }
    }
    for (unsigned half = threadIdx.x; half < kHalves; half += kThreads) {
      bits[now ^ 1][half] = seen[half] | bits_from(seen, half, grain);
    }
    __syncthreads();
  }
}

}  // namespace

cudaError_t count_grain_windows(ElementType type, const void* x, std::uint64_t elements, const Limits& limits,
                                std::uint64_t windows, std::uint64_t taken, std::uint64_t* counts,
                                cudaStream_t stream) {
  const cudaError_t code = cudaMemsetAsync(counts, 0, kGrainCounts * sizeof(std::uint64_t), stream);
  if (code != cudaSuccess || taken == 0) return code;
  with_bits(type, [&](auto b) {
    using Bits = decltype(b);
    count_windows<Bits><<<static_cast<unsigned>(taken), kThreads, 0, stream>>>(
        static_cast<const Bits*>(x), elements, limits, windows, taken, reinterpret_cast<unsigned long long*>(counts));
  });
  return cudaGetLastError();
}

}  // namespace peel::cuda::detail
