// The values of elements and cells, one header for every backend, host and device: every type as a double and back,
// sums in the type itself, fixed-point cells.
//
// A fixed cell holds round(x * 2^scale), ties to even, as an unsigned integer modulo 2^32 or 2^64, so sums do not
// depend on their order and peeling is exact. An integer element is its own cell, sign-extended.
//
// Results are the same bits on a host and on a device, but for which NaN a NaN becomes.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "peel/types.h"
#include "plan/host_device.h"

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace peel::detail {

// The unsigned integer of an element's width.
template <typename T>
using Bits = std::conditional_t<sizeof(T) == 1, std::uint8_t,
                                std::conditional_t<sizeof(T) == 2, std::uint16_t,
                                                   std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>>;

// ---- 16-bit floats <-> double, on a host. The formats differ in the width of their exponent only.

struct HalfFormat {
  static constexpr int mantissa = 10, bias = 15;
};
struct BrainFormat {
  static constexpr int mantissa = 7, bias = 127;
};

template <typename Format>
inline double widen16(std::uint16_t bits) {
  constexpr int kExponentBits = 15 - Format::mantissa;
  const int exponent = (bits >> Format::mantissa) & ((1 << kExponentBits) - 1);
  const int fraction = bits & ((1 << Format::mantissa) - 1);
  const double sign = (bits & 0x8000) ? -1.0 : 1.0;
  if (exponent == (1 << kExponentBits) - 1) {
    return fraction ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(static_cast<double>(fraction), 1 - Format::bias - Format::mantissa);
  return sign * std::ldexp(static_cast<double>(fraction | (1 << Format::mantissa)),
                           exponent - Format::bias - Format::mantissa);
}

// Rounded once, ties to even; too large becomes infinity, as any float addition does.
template <typename Format>
inline std::uint16_t narrow16(double value) {
  constexpr int kExponentBits = 15 - Format::mantissa;
  constexpr std::uint16_t kInfinity = ((1 << kExponentBits) - 1) << Format::mantissa;
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(value);
  if (std::isnan(value)) return sign | kInfinity | 1 << (Format::mantissa - 1);
  if (magnitude == 0) return sign;
  int exponent = std::isinf(value) ? 2048 : std::ilogb(magnitude);
  if (exponent < 1 - Format::bias) exponent = 1 - Format::bias;  // subnormal: the quantum stops shrinking
  if (exponent > Format::bias) return sign | kInfinity;
  const auto steps = static_cast<int>(std::nearbyint(std::ldexp(magnitude, Format::mantissa - exponent)));
  // A carry out of the fraction moves into the exponent by itself, up to infinity.
  const int bits = ((exponent + Format::bias - 1) << Format::mantissa) + steps;
  return static_cast<std::uint16_t>(sign | (bits > kInfinity ? kInfinity : bits));
}

// ---- any element <-> double

template <typename T>
PEEL_HOST_DEVICE double widen(T value) {
  if constexpr (std::is_same_v<T, float16>) {
#if defined(__CUDA_ARCH__)
    return __half2float(__ushort_as_half(value.bits));
#else
    return widen16<HalfFormat>(value.bits);
#endif
  } else if constexpr (std::is_same_v<T, bfloat16>) {
#if defined(__CUDA_ARCH__)
    return __bfloat162float(__ushort_as_bfloat16(value.bits));
#else
    return widen16<BrainFormat>(value.bits);
#endif
  } else {
    return static_cast<double>(value);
  }
}

// Rounded once, ties to even.
template <typename T>
PEEL_HOST_DEVICE T narrow(double value) {
  if constexpr (std::is_same_v<T, float16>) {
#if defined(__CUDA_ARCH__)
    return {__half_as_ushort(__double2half(value))};
#else
    return {narrow16<HalfFormat>(value)};
#endif
  } else if constexpr (std::is_same_v<T, bfloat16>) {
#if defined(__CUDA_ARCH__)
    return {__bfloat16_as_ushort(__double2bfloat16(value))};
#else
    return {narrow16<BrainFormat>(value)};
#endif
  } else {
#if defined(__CUDA_ARCH__)
    if constexpr (std::is_same_v<T, float>) return __double2float_rn(value);
#endif
    return static_cast<T>(value);
  }
}

// ---- sums and differences that no compiler makes part of a fused multiply-add

// The sum as a dense all-reduce would add two values: in the type itself, rounded once, integers modulo their width.
template <typename T>
PEEL_HOST_DEVICE T add(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
  } else if constexpr (sizeof(T) == 2) {
    return narrow<T>(add(widen(a), widen(b)));
  } else {
#if defined(__CUDA_ARCH__)
    if constexpr (std::is_same_v<T, float>) {
      return __fadd_rn(a, b);
    } else {
      return __dadd_rn(a, b);
    }
#else
    return a + b;
#endif
  }
}

PEEL_HOST_DEVICE double subtract(double a, double b) {
#if defined(__CUDA_ARCH__)
  return __dsub_rn(a, b);
#else
  return a - b;
#endif
}

// ---- fixed cells

// The cell of value * 2^scale, which must fit.
template <typename Cell>
PEEL_HOST_DEVICE Cell fixed_cell(double scaled) {
#if defined(__CUDA_ARCH__)
  if constexpr (sizeof(Cell) == 4) {
    return static_cast<Cell>(__double2int_rn(scaled));
  } else {
    return static_cast<Cell>(__double2ll_rn(scaled));
  }
#else
  return static_cast<Cell>(static_cast<std::make_signed_t<Cell>>(std::nearbyint(scaled)));
#endif
}

// Its value; `down` is 2^-scale.
template <typename Cell>
PEEL_HOST_DEVICE double fixed_value(Cell cell, double down) {
  return static_cast<double>(static_cast<std::make_signed_t<Cell>>(cell)) * down;
}

// x, or -x where bit `bit` of `signs` is set. Without a branch: the bit is a coin toss.
template <typename Cell>
PEEL_HOST_DEVICE Cell with_sign(Cell x, std::uint32_t signs, std::uint32_t bit) {
  const std::uint32_t negative = (signs >> bit) & 1;
  if constexpr (std::is_same_v<Cell, float>) {
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) ^ (negative << 31));
  } else {
    const Cell mask = Cell{0} - static_cast<Cell>(negative);
    return static_cast<Cell>((x ^ mask) - mask);
  }
}

}  // namespace peel::detail
