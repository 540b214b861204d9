// Elements and cells on a host, where types are known when it is compiled. The arithmetic is plan/element_values.h,
// which kernels share; codec/cuda/conversion.cuh does the same with types that are known at run time.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "peel/geometry.h"
#include "peel/types.h"
#include "plan/element_values.h"

namespace peel::detail {

// ---- element <-> cell

// Fixed cells of floating-point elements: values are rounded to a scale, and may not fit.
inline bool has_scale(const Geometry& g) {
  return (g.cells == CellType::fixed32 || g.cells == CellType::fixed64) && !is_integer(g.type);
}

// The largest number whose fixed cell is at most `limit`, which is below 2^63.
inline double largest_fitting(std::uint64_t limit) {
  const bool has_halves = limit < std::uint64_t{1} << 52;  // doubles of this size
  const double end = static_cast<double>(limit) + (has_halves ? 0.5 : 0.0);
  // A tie goes to the even one of its neighbours, and a limit that is no double may have been rounded up.
  const bool past = has_halves ? limit % 2 != 0 : static_cast<std::uint64_t>(end) > limit;
  return past ? std::bit_cast<double>(std::bit_cast<std::uint64_t>(end) - 1) : end;
}

struct Scaling {
  double up = 1;       // 2^scale
  double down = 1;     // 2^-scale
  double largest = 0;  // magnitude, scaled, that one worker may put into a cell

  explicit Scaling(const Geometry& g)
      : up(std::ldexp(1.0, g.scale)),
        down(std::ldexp(1.0, -g.scale)),
        largest(largest_fitting(((std::uint64_t{1} << (g.cells == CellType::fixed64 ? 63 : 31)) - 1) / g.workers)) {}
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
    const double scaled = widen(value) * scaling.up;
    const bool good = std::fabs(scaled) <= scaling.largest;
    fits &= good;
    return fixed_cell<Cell>(good ? scaled : 0.0);
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
    return narrow<T>(fixed_value(cell, scaling.down));
  }
}

// ---- which elements are zero
//
// An element is zero when its magnitude, read as an unsigned integer, is at most a threshold: 0 in its own type (so
// that -0.0 is zero and NaN is not), or what the scale rounds to zero.

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
