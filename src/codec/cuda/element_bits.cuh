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

// Four elements as one store, or two where they are 8 bytes each.
__device__ inline void store_quad(std::uint8_t* to, const std::uint8_t (&v)[4]) {
  __stcs(reinterpret_cast<std::uint32_t*>(to), v[0] | v[1] << 8 | v[2] << 16 | std::uint32_t{v[3]} << 24);
}
__device__ inline void store_quad(std::uint16_t* to, const std::uint16_t (&v)[4]) {
  __stcs(reinterpret_cast<uint2*>(to), make_uint2(v[0] | std::uint32_t{v[1]} << 16, v[2] | std::uint32_t{v[3]} << 16));
}
__device__ inline void store_quad(std::uint32_t* to, const std::uint32_t (&v)[4]) {
  __stcs(reinterpret_cast<uint4*>(to), make_uint4(v[0], v[1], v[2], v[3]));
}
__device__ inline void store_quad(std::uint64_t* to, const std::uint64_t (&v)[4]) {
  __stcs(reinterpret_cast<ulonglong2*>(to), make_ulonglong2(v[0], v[1]));
  __stcs(reinterpret_cast<ulonglong2*>(to) + 1, make_ulonglong2(v[2], v[3]));
}

// Four elements of at most 4 bytes as one load.
__device__ inline void load_quad(const std::uint8_t* from, std::uint8_t (&v)[4]) {
  const std::uint32_t four = __ldcs(reinterpret_cast<const std::uint32_t*>(from));
#pragma unroll
  for (unsigned e = 0; e < 4; ++e) v[e] = static_cast<std::uint8_t>(four >> (8 * e));
}
__device__ inline void load_quad(const std::uint16_t* from, std::uint16_t (&v)[4]) {
  const uint2 four = __ldcs(reinterpret_cast<const uint2*>(from));
  v[0] = static_cast<std::uint16_t>(four.x);
  v[1] = static_cast<std::uint16_t>(four.x >> 16);
  v[2] = static_cast<std::uint16_t>(four.y);
  v[3] = static_cast<std::uint16_t>(four.y >> 16);
}
__device__ inline void load_quad(const std::uint32_t* from, std::uint32_t (&v)[4]) {
  const uint4 four = __ldcs(reinterpret_cast<const uint4*>(from));
  v[0] = four.x;
  v[1] = four.y;
  v[2] = four.z;
  v[3] = four.w;
}

template <typename Bits>
__device__ bool takes_quads(const Bits* to) {
  return reinterpret_cast<std::uintptr_t>(to) % (sizeof(Bits) == 8 ? 16 : 4 * sizeof(Bits)) == 0;
}

}  // namespace peel::cuda::detail
