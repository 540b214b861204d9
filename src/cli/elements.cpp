#include "cli/elements.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace peel::cli {
namespace {

struct Format {
  int digits;        // of the significand, with the hidden one
  int min_exponent;  // of the smallest normal number
  double largest;
};

constexpr Format format_of(ElementType type) {
  switch (type) {
    case ElementType::float64:
      return {53, -1022, std::numeric_limits<double>::max()};
    case ElementType::float16:
      return {11, -14, 65504};
    case ElementType::bfloat16:
      return {8, -126, 0x1.FEp127};
    default:
      return {24, -126, std::numeric_limits<float>::max()};
  }
}

double round_to(const Format& format, double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  const int exponent = std::max(std::ilogb(value), format.min_exponent);
  const int shift = format.digits - 1 - exponent;
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(value, shift)), -shift);
  return std::fabs(rounded) > format.largest ? std::copysign(HUGE_VAL, value) : rounded;
}

double widen(float x) { return static_cast<double>(x); }
double widen(double x) { return x; }
double widen(bfloat16 x) { return static_cast<double>(std::bit_cast<float>(std::uint32_t{x.bits} << 16)); }
double widen(float16 x) {
  const int exponent = (x.bits >> 10) & 31;
  const int fraction = x.bits & 1023;
  const double sign = (x.bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * HUGE_VAL;
  return sign * (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25));
}
template <typename Integer>
double widen(Integer x) {
  return static_cast<double>(x);
}

void narrow(double value, float& out) { out = static_cast<float>(value); }
void narrow(double value, double& out) { out = value; }
void narrow(double value, bfloat16& out) {
  const auto rounded = static_cast<float>(round_to(format_of(ElementType::bfloat16), value));
  out.bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(rounded) >> 16);
}
void narrow(double value, float16& out) {
  const double rounded = std::fabs(round_to(format_of(ElementType::float16), value));
  unsigned bits = 0x7E00;  // NaN
  if (std::isinf(rounded)) {
    bits = 0x7C00;
  } else if (rounded < 0x1p-14) {
    bits = static_cast<unsigned>(rounded * 0x1p24);
  } else if (!std::isnan(rounded)) {
    const int exponent = std::ilogb(rounded);
    bits =
        (static_cast<unsigned>(exponent + 15) << 10) + static_cast<unsigned>(std::ldexp(rounded, 10 - exponent)) - 1024;
  }
  out.bits = static_cast<std::uint16_t>(bits | (std::signbit(value) ? 0x8000 : 0));
}
template <typename Integer>
void narrow(double value, Integer& out) {
  out = static_cast<Integer>(static_cast<std::int64_t>(value));
}

// Calls visit with a null pointer to the C++ type of the element.
template <typename Visit>
auto with_type(ElementType type, Visit visit) {
  switch (type) {
    case ElementType::float64:
      return visit(static_cast<double*>(nullptr));
    case ElementType::float16:
      return visit(static_cast<float16*>(nullptr));
    case ElementType::bfloat16:
      return visit(static_cast<bfloat16*>(nullptr));
    case ElementType::int8:
      return visit(static_cast<std::int8_t*>(nullptr));
    case ElementType::int16:
      return visit(static_cast<std::int16_t*>(nullptr));
    case ElementType::int32:
      return visit(static_cast<std::int32_t*>(nullptr));
    case ElementType::int64:
      return visit(static_cast<std::int64_t*>(nullptr));
    default:
      return visit(static_cast<float*>(nullptr));
  }
}

}  // namespace

void read_elements(ConstDense x, std::uint64_t begin, std::span<double> out) {
  with_type(x.type, [&]<typename T>(T*) {
    const T* from = static_cast<const T*>(x.data) + begin;
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = widen(from[i]);
  });
}

void write_elements(Dense x, std::uint64_t begin, std::span<const double> values) {
  with_type(x.type, [&]<typename T>(T*) {
    T* to = static_cast<T*>(x.data) + begin;
    for (std::size_t i = 0; i < values.size(); ++i) narrow(values[i], to[i]);
  });
}

double nearest(double value, ElementType type) {
  return with_type(type, [&]<typename T>(T*) {
    T held;
    narrow(value, held);
    return widen(held);
  });
}

double spacing(double value, ElementType type) {
  if (is_integer(type)) return 0;
  const Format format = format_of(type);
  const int exponent = value == 0 || !std::isfinite(value) ? format.min_exponent : std::ilogb(value);
  return std::ldexp(1, std::max(exponent, format.min_exponent) - format.digits + 1);
}

int exact_digits(ElementType type) {
  return is_integer(type) ? static_cast<int>(8 * size_of(type)) - 2 : format_of(type).digits;
}

}  // namespace peel::cli
