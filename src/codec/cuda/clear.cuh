// Zeros of an array that is decoded, 16 bytes at a time, by thread blocks that share a grid with others that peel.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "codec/cuda/device_limits.h"
#include "codec/cuda/tiles.cuh"

namespace peel::cuda::detail {

// 8 bytes of the smallest elements: no more than a group.
template <typename Bits>
using Unit = std::conditional_t<sizeof(Bits) == 1, uint2, uint4>;
template <typename Bits>
constexpr unsigned kUnitElements = sizeof(Unit<Bits>) / sizeof(Bits);

template <typename Bits>
__device__ void clear_unit(const Geometry& g, std::uint64_t first, Bits* x) {
  const bool aligned = reinterpret_cast<std::uintptr_t>(x) % sizeof(Unit<Bits>) == 0;
  if (first + kUnitElements<Bits> <= g.elements && aligned) {
    __stcs(reinterpret_cast<Unit<Bits>*>(x + first), Unit<Bits>{});
  } else {
    for (unsigned i = 0; i < kUnitElements<Bits> && first + i < g.elements; ++i) x[first + i] = 0;
  }
}

// How many thread blocks clear beside `others`: as many as fill a GPU twice together with them, or one for eight;
// no more than have work.
inline std::uint32_t clearing_blocks(const Geometry& g, std::uint64_t others) {
  constexpr std::uint64_t kTwice = 2 * kMultiprocessors;
  constexpr std::uint64_t kElements = 8192;
  const std::uint64_t useful = (g.elements + kElements - 1) / kElements;
  const std::uint64_t idle = others < kTwice ? kTwice - others : 0;
  return static_cast<std::uint32_t>(std::min(useful, std::max(idle, (others + 7) / 8)));
}

// By thread block `share` of `shares`, all units u for which is_empty(u) is true: what it loads for the next ones is
// under way while these are stored.
template <typename Bits, typename IsEmpty>
__device__ void clear_units(const Geometry& g, std::uint32_t share, std::uint32_t shares, Bits* x, IsEmpty&& is_empty) {
  constexpr unsigned kAtOnce = 8;  // of a thread
  const std::uint64_t units = (g.elements + kUnitElements<Bits> - 1) / kUnitElements<Bits>;
  const std::uint64_t step = std::uint64_t{kAtOnce} * blockDim.x;
  const auto look = [&](std::uint64_t base) {
    std::uint32_t empty = 0;
#pragma unroll
    for (unsigned k = 0; k < kAtOnce; ++k) {
      const std::uint64_t unit = base + k * blockDim.x + threadIdx.x;
      if (unit < units && is_empty(unit)) empty |= 1u << k;
    }
    return empty;
  };
  std::uint64_t base = share * step;
  std::uint32_t empty = look(base);
  while (base < units) {
    const std::uint64_t next = base + shares * step;
    const std::uint32_t then = look(next);
#pragma unroll
    for (unsigned k = 0; k < kAtOnce; ++k) {
      if ((empty >> k & 1) != 0) clear_unit(g, (base + k * blockDim.x + threadIdx.x) * kUnitElements<Bits>, x);
    }
    base = next;
    empty = then;
  }
}

}  // namespace peel::cuda::detail
