// Elements to cells and back, on the device: what values.h does on the host, chosen at run time. All threads of a
// kernel take the same way, so the choice costs a few instructions and saves 30 copies of every kernel. The arithmetic
// is plan/element_values.h.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "codec/cuda/kernels.h"
#include "plan/element_values.h"

namespace peel::cuda::detail {

using peel::detail::fixed_cell;
using peel::detail::fixed_value;

template <typename T>
__device__ T element_from(std::uint64_t bits) {
  return std::bit_cast<T>(static_cast<peel::detail::Bits<T>>(bits));
}
template <typename T>
__device__ std::uint64_t bits_of(T element) {
  return std::bit_cast<peel::detail::Bits<T>>(element);
}

__device__ inline double widen_bits(std::uint64_t bits, ElementType type) {
  switch (type) {
    case ElementType::float32:
      return peel::detail::widen(element_from<float>(bits));
    case ElementType::float64:
      return element_from<double>(bits);
    case ElementType::float16:
      return peel::detail::widen(element_from<float16>(bits));
    default:
      return peel::detail::widen(element_from<bfloat16>(bits));
  }
}

__device__ inline std::uint64_t narrow_bits(double value, ElementType type) {
  switch (type) {
    case ElementType::float32:
      return bits_of(peel::detail::narrow<float>(value));
    case ElementType::float64:
      return bits_of(value);
    case ElementType::float16:
      return bits_of(peel::detail::narrow<float16>(value));
    default:
      return bits_of(peel::detail::narrow<bfloat16>(value));
  }
}

// Sign-extended.
__device__ inline std::int64_t integer_of(std::uint64_t bits, ElementType type) {
  switch (type) {
    case ElementType::int8:
      return static_cast<std::int8_t>(bits);
    case ElementType::int16:
      return static_cast<std::int16_t>(bits);
    case ElementType::int32:
      return static_cast<std::int32_t>(bits);
    default:
      return static_cast<std::int64_t>(bits);
  }
}

__device__ inline bool is_whole(ElementType type) { return type >= ElementType::int8; }

// A cell of 4 or 8 bytes, whatever it holds: fixed32, fixed64 or float32.
template <typename Cell>
__device__ inline Cell to_cell(std::uint64_t bits, const Conversion& how);

template <>
__device__ inline std::uint32_t to_cell<std::uint32_t>(std::uint64_t bits, const Conversion& how) {
  if (how.single) {  // the product is exact, and F2I rounds ties to even
    return static_cast<std::uint32_t>(
        __float2int_rn(__uint_as_float(static_cast<std::uint32_t>(bits)) * static_cast<float>(how.up)));
  }
  if (is_whole(how.type)) return static_cast<std::uint32_t>(integer_of(bits, how.type));
  const double value = widen_bits(bits, how.type);
  if (how.cells == CellType::float32) return std::bit_cast<std::uint32_t>(peel::detail::narrow<float>(value));
  return fixed_cell<std::uint32_t>(value * how.up);
}

template <>
__device__ inline std::uint64_t to_cell<std::uint64_t>(std::uint64_t bits, const Conversion& how) {
  if (is_whole(how.type)) return static_cast<std::uint64_t>(integer_of(bits, how.type));
  return fixed_cell<std::uint64_t>(widen_bits(bits, how.type) * how.up);
}

__device__ inline std::uint64_t from_cell(std::uint32_t cell, const Conversion& how) {
  if (how.single) {  // rounded once, since the product is exact
    return __float_as_uint(__int2float_rn(static_cast<int>(cell)) * static_cast<float>(how.down));
  }
  if (is_whole(how.type)) return static_cast<std::uint64_t>(static_cast<std::int64_t>(static_cast<std::int32_t>(cell)));
  if (how.cells == CellType::float32) return narrow_bits(__uint_as_float(cell), how.type);
  return narrow_bits(fixed_value(cell, how.down), how.type);
}

__device__ inline std::uint64_t from_cell(std::uint64_t cell, const Conversion& how) {
  if (is_whole(how.type)) return cell;
  return narrow_bits(fixed_value(cell, how.down), how.type);
}

// The element of a cell, or of a value of a packed message, which is one where cells are native.
template <typename Bits, typename In>
__device__ Bits element_of(In cell, const Conversion& how) {
  if constexpr (std::is_same_v<In, Bits>) {
    if (how.cells == CellType::native) return cell;
  }
  if constexpr (sizeof(In) >= 4) {
    return static_cast<Bits>(from_cell(cell, how));
  } else {
    return cell;
  }
}

// Adds to a cell that other threads add to as well. Integers wrap; for float32 the order decides roundings.
__device__ inline void add_to_cell(std::uint32_t* to, std::uint32_t cell, const Conversion& how) {
  if (how.cells == CellType::float32) {
    atomicAdd(reinterpret_cast<float*>(to), __uint_as_float(cell));
  } else {
    atomicAdd(to, cell);
  }
}
__device__ inline void add_to_cell(std::uint64_t* to, std::uint64_t cell, const Conversion&) {
  atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(cell));
}

// A cell, whatever it holds, or its negative where bit `bit` of `signs` is set.
__device__ inline std::uint32_t with_sign(std::uint32_t cell, std::uint32_t signs, unsigned bit,
                                          const Conversion& how) {
  if (how.cells == CellType::float32) {
    return std::bit_cast<std::uint32_t>(peel::detail::with_sign(std::bit_cast<float>(cell), signs, bit));
  }
  return peel::detail::with_sign(cell, signs, bit);
}
__device__ inline std::uint64_t with_sign(std::uint64_t cell, std::uint32_t signs, unsigned bit, const Conversion&) {
  return peel::detail::with_sign(cell, signs, bit);
}

}  // namespace peel::cuda::detail
