// Logarithms and roots in integers: sizes must not depend on anybody's floating point.
#pragma once

#include <bit>
#include <cstdint>

namespace peel::detail {

__extension__ using Wide = unsigned __int128;

// log2(x) with 32 fractional bits, rounded down; x >= 1. Squaring the mantissa yields one bit of the result a time.
constexpr std::uint64_t log2_q32(std::uint64_t x) {
  const int exponent = 63 - std::countl_zero(x);
  std::uint64_t mantissa = x << (63 - exponent);  // in [1, 2) with 63 fractional bits
  std::uint64_t result = static_cast<std::uint64_t>(exponent) << 32;
  for (int bit = 31; bit >= 0; --bit) {
    const Wide square = static_cast<Wide>(mantissa) * mantissa;  // in [1, 4) with 126 fractional bits
    if (square >> 127) {
      result |= std::uint64_t{1} << bit;
      mantissa = static_cast<std::uint64_t>(square >> 64);
    } else {
      mantissa = static_cast<std::uint64_t>(square >> 63);
    }
  }
  return result;
}

// The smallest r with r * r >= x.
constexpr std::uint64_t root_up(std::uint64_t x) {
  std::uint64_t low = 0;
  std::uint64_t high = std::uint64_t{1} << 32;
  while (low < high) {
    const std::uint64_t middle = (low + high) / 2;
    if (static_cast<Wide>(middle) * middle >= x) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

constexpr std::uint64_t divide_up(std::uint64_t a, std::uint64_t b) { return a / b + (a % b != 0); }

}  // namespace peel::detail
