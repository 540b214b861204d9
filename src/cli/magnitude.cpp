// Without their sign bit, floats are ordered as the integers with the same bits, in every format. So the largest is
// found in integers, which compilers vectorise, and only one value is ever converted.
#include "cli/magnitude.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace peel::cli {
namespace {

// `infinity` is the pattern of the format's infinity; what is above is NaN.
template <typename Bits>
Bits largest_finite(ConstDense x, Bits infinity) {
  const Bits without_sign = static_cast<Bits>(static_cast<Bits>(~Bits{0}) >> 1);
  const Bits* bits = static_cast<const Bits*>(x.data);
  Bits largest = 0;
  for (std::uint64_t i = 0; i < x.size; ++i) {
    const Bits magnitude = static_cast<Bits>(bits[i] & without_sign);
    largest = std::max(largest, magnitude < infinity ? magnitude : Bits{0});
  }
  return largest;
}

double from_float16(std::uint16_t bits) {
  const int exponent = bits >> 10;
  const int fraction = bits & 0x3FF;
  return exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(fraction + 0x400, exponent - 25);
}

}  // namespace

double largest_magnitude(ConstDense x) {
  switch (x.type) {
    case ElementType::float32:
      return std::bit_cast<float>(largest_finite<std::uint32_t>(x, 0x7F800000));
    case ElementType::float64:
      return std::bit_cast<double>(largest_finite<std::uint64_t>(x, 0x7FF0000000000000));
    case ElementType::float16:
      return from_float16(largest_finite<std::uint16_t>(x, 0x7C00));
    case ElementType::bfloat16:
      return std::bit_cast<float>(static_cast<std::uint32_t>(largest_finite<std::uint16_t>(x, 0x7F80)) << 16);
    default:
      return 0;
  }
}

}  // namespace peel::cli
