// Elements as bits: most kernels only move them, and care for their width alone.
#pragma once

#include <cstdint>

#include "peel/types.h"

namespace peel::cuda::detail {

// visit(Bits{}) with the unsigned integer of the type's width.
template <typename Visit>
void with_bits(ElementType type, Visit&& visit) {
  switch (type) {
    case ElementType::int8:
      return visit(std::uint8_t{});
    case ElementType::float16:
    case ElementType::bfloat16:
    case ElementType::int16:
      return visit(std::uint16_t{});
    case ElementType::float64:
    case ElementType::int64:
      return visit(std::uint64_t{});
    default:
      return visit(std::uint32_t{});
  }
}

// Loads and stores that leave the cache to others.
__device__ inline std::uint8_t load_once(const std::uint8_t* from) { return __ldcs(from); }
__device__ inline std::uint16_t load_once(const std::uint16_t* from) { return __ldcs(from); }
__device__ inline std::uint32_t load_once(const std::uint32_t* from) { return __ldcs(from); }
__device__ inline std::uint64_t load_once(const std::uint64_t* from) {
  return __ldcs(reinterpret_cast<const unsigned long long*>(from));
}
__device__ inline void store_once(std::uint8_t* to, std::uint8_t value) { __stcs(to, value); }
__device__ inline void store_once(std::uint16_t* to, std::uint16_t value) { __stcs(to, value); }
__device__ inline void store_once(std::uint32_t* to, std::uint32_t value) { __stcs(to, value); }
__device__ inline void store_once(std::uint64_t* to, std::uint64_t value) {
  __stcs(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(value));
}

}  // namespace peel::cuda::detail
