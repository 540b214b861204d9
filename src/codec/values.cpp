#include "codec/values.h"

namespace peel::detail {

namespace {

// The bits of 2^exponent in a float of the given shape, rounded down: 0 below the smallest, the largest finite number
// above that.
std::uint64_t power_bits(int exponent, int mantissa, int bias) {
  if (exponent > bias) return (static_cast<std::uint64_t>(2 * bias + 1) << mantissa) - 1;
  if (exponent >= 1 - bias) return static_cast<std::uint64_t>(exponent + bias) << mantissa;
  const int subnormal = exponent - (1 - bias - mantissa);
  return subnormal >= 0 ? std::uint64_t{1} << subnormal : 0;
}

}  // namespace

ZeroTest zero_test(const Geometry& g) {
  ZeroTest test;
  const int half = -g.scale - 1;  // magnitudes up to 2^half round to zero, the tie included
  const auto floating = [&](int mantissa, int bias, std::uint64_t mask) {
    test.mask = mask;
    test.threshold = has_scale(g) ? power_bits(half, mantissa, bias) : 0;
  };
  switch (g.type) {
    case ElementType::float32:
      floating(23, 127, 0x7FFFFFFFu);
      break;
    case ElementType::float64:
      floating(52, 1023, 0x7FFFFFFFFFFFFFFFu);
      break;
    case ElementType::float16:
      floating(10, 15, 0x7FFFu);
      break;
    case ElementType::bfloat16:
      floating(7, 127, 0x7FFFu);
      break;
    default:
      test.mask = ~std::uint64_t{0};
      break;
  }
  return test;
}

}  // namespace peel::detail
