// Elements and cells: the arithmetic of values, one place for all backends.
//
// A fixed cell holds round(x * 2^scale), ties to even, as an unsigned integer modulo 2^32 or 2^64, so sums do not
// depend on their order and peeling is exact. An integer element is its own cell, sign-extended.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "peel/geometry.h"
#include "peel/types.h"

namespace peel::detail {

// ---- 16-bit floats <-> double. The formats differ in the width of their exponent only.

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
inline double widen(T value) {
  if constexpr (std::is_same_v<T, float16>) {
    return widen16<HalfFormat>(value.bits);
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    return widen16<BrainFormat>(value.bits);
  } else {
    return static_cast<double>(value);
  }
}

template <typename T>
inline T narrow(double value) {
  if constexpr (std::is_same_v<T, float16>) {
    return {narrow16<HalfFormat>(value)};
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    return {narrow16<BrainFormat>(value)};
  } else {
    return static_cast<T>(value);
  }
}

// The sum as a dense all-reduce would add two values: in the type itself, rounded once, integers modulo their width.
template <typename T>
inline T add(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
  } else if constexpr (sizeof(T) == 2) {
    return narrow<T>(widen(a) + widen(b));
  } else {
    return a + b;
  }
}

// ---- element <-> cell

// Fixed cells of floating-point elements: values are rounded to a scale, and may not fit.
inline bool has_scale(const Geometry& g) {
  return (g.cells == CellType::fixed32 || g.cells == CellType::fixed64) && !is_integer(g.type);
}

struct Scaling {
  double up = 1;            // 2^scale
  double down = 1;          // 2^-scale
  std::uint64_t limit = 0;  // the largest magnitude a cell may take from one worker

  explicit Scaling(const Geometry& g)
      : up(std::ldexp(1.0, g.scale)),
        down(std::ldexp(1.0, -g.scale)),
        limit(((std::uint64_t{1} << (g.cells == CellType::fixed64 ? 63 : 31)) - 1) / g.workers) {}
};

// Clears `fits` where the value is not finite or too large for its cell.
template <typename Cell, typename T>
inline Cell to_cell(T value, const Scaling& scaling, bool& fits) {
  if constexpr (std::is_same_v<Cell, T>) {
    return value;
  } else if constexpr (std::is_same_v<Cell, float>) {
    return static_cast<float>(widen(value));
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<Cell>(static_cast<std::int64_t>(value));
  } else {
    const double scaled = std::nearbyint(widen(value) * scaling.up);
    if constexpr (sizeof(Cell) == 4) {
      const bool good = std::fabs(scaled) <= static_cast<double>(scaling.limit);
      fits &= good;
      return static_cast<Cell>(static_cast<std::int32_t>(good ? scaled : 0.0));
    } else {
      const bool inside = std::fabs(scaled) < 0x1p63;
      const auto fixed = static_cast<std::int64_t>(inside ? scaled : 0.0);
      const auto magnitude = static_cast<std::uint64_t>(fixed < 0 ? -fixed : fixed);
      fits &= inside && magnitude <= scaling.limit;
      return static_cast<Cell>(fixed);
    }
  }
}

template <typename T, typename Cell>
inline T from_cell(Cell cell, const Scaling& scaling) {
  if constexpr (std::is_same_v<Cell, T>) {
    return cell;
  } else if constexpr (std::is_same_v<Cell, float>) {
    return narrow<T>(static_cast<double>(cell));
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(cell);
  } else {
    return narrow<T>(static_cast<double>(static_cast<std::make_signed_t<Cell>>(cell)) * scaling.down);
  }
}

// x, or -x where bit `bit` of `signs` is set. Without a branch: the bit is a coin toss.
template <typename Cell>
inline Cell with_sign(Cell x, std::uint32_t signs, std::uint32_t bit) {
  const std::uint32_t negative = (signs >> bit) & 1;
  if constexpr (std::is_same_v<Cell, float>) {
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) ^ (negative << 31));
  } else {
    const Cell mask = Cell{0} - static_cast<Cell>(negative);
    return static_cast<Cell>((x ^ mask) - mask);
  }
}

// ---- which elements are zero
//
// An element is zero when its magnitude, read as an unsigned integer, is at most a threshold: 0 in its own type (so
// that -0.0 is zero and NaN is not), or what the scale rounds to zero.

template <typename T>
using Bits = std::conditional_t<sizeof(T) == 1, std::uint8_t,
                                std::conditional_t<sizeof(T) == 2, std::uint16_t,
                                                   std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>>;

struct ZeroTest {
  std::uint64_t mask = 0;       // drops the sign of floats
  std::uint64_t threshold = 0;  // element is zero when (bits & mask) <= threshold
};

template <typename T>
inline bool is_zero(T value, const ZeroTest& test) {
  return (std::bit_cast<Bits<T>>(value) & test.mask) <= test.threshold;
}

ZeroTest zero_test(const Geometry& g);

// ---- run-time type -> compile-time type

template <typename Visitor>
decltype(auto) with_element(ElementType type, Visitor&& visit) {
  switch (type) {
    case ElementType::float32:
      return visit(float{});
    case ElementType::float64:
      return visit(double{});
    case ElementType::float16:
      return visit(float16{});
    case ElementType::bfloat16:
      return visit(bfloat16{});
    case ElementType::int8:
      return visit(std::int8_t{});
    case ElementType::int16:
      return visit(std::int16_t{});
    case ElementType::int32:
      return visit(std::int32_t{});
    default:
      return visit(std::int64_t{});
  }
}

// visit(T{}, Cell{}) for the cells of a plan; `native` cells are T themselves.
template <typename Visitor>
decltype(auto) with_cell(const Geometry& g, Visitor&& visit) {
  return with_element(g.type, [&](auto t) -> decltype(auto) {
    using T = decltype(t);
    switch (g.cells) {
      case CellType::fixed32:
        return visit(T{}, std::uint32_t{});
      case CellType::fixed64:
        return visit(T{}, std::uint64_t{});
      case CellType::float32:
        return visit(T{}, float{});
      default:
        return visit(T{}, T{});
    }
  });
}

// The same for a sketch, which has no native cells.
template <typename Visitor>
decltype(auto) with_sketch_cell(const Geometry& g, Visitor&& visit) {
  return with_element(g.type, [&](auto t) -> decltype(auto) {
    using T = decltype(t);
    switch (g.cells) {
      case CellType::fixed64:
        return visit(T{}, std::uint64_t{});
      case CellType::float32:
        return visit(T{}, float{});
      default:
        return visit(T{}, std::uint32_t{});
    }
  });
}

}  // namespace peel::detail
