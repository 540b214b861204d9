// Floats of 16 bits, by their bits: written apart from the library's own conversions (plan/element_values.h), so that
// tests compare two ways of doing it, as they do on a GPU.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace stand_in {

template <int kExponentBits>
struct NarrowFloat {
  static constexpr int kFractionBits = 15 - kExponentBits;
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr std::uint16_t kInfinity = ((1u << kExponentBits) - 1) << kFractionBits;

  static double widen(std::uint16_t bits) {
    const int exponent = (bits & 0x7FFF) >> kFractionBits;
    const int fraction = bits & ((1 << kFractionBits) - 1);
    const bool negative = (bits & 0x8000) != 0;
    double size = 0;
    if ((bits & 0x7FFF) > kInfinity) {
      size = std::bit_cast<double>(0x7FF8000000000000ull | std::uint64_t(fraction) << (52 - kFractionBits));
    } else if ((bits & 0x7FFF) == kInfinity) {
      size = INFINITY;
    } else if (exponent == 0) {
      size = std::ldexp(fraction, 1 - kBias - kFractionBits);
    } else {
      size = std::ldexp(fraction + (1 << kFractionBits), exponent - kBias - kFractionBits);
    }
    return std::copysign(size, negative ? -1.0 : 1.0);
  }

  // Rounds once, ties to even; NaN becomes the one that CUDA makes of all.
  static std::uint16_t narrow(double value) {
    if (std::isnan(value)) return 0x7FFF;
    const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    const double size = std::fabs(value);
    if (std::isinf(size)) return sign | kInfinity;
    if (size == 0) return sign;
    int exponent = std::ilogb(size);
    if (exponent < 1 - kBias) exponent = 1 - kBias;
    const double scaled = std::nearbyint(std::ldexp(size, kFractionBits - exponent));  // exact but for the rounding
    // The leading one of a normal number adds one to the exponent, and so does a fraction that was rounded up to 2.
    const auto whole = static_cast<std::uint32_t>(scaled);
    const std::uint32_t bits = (static_cast<std::uint32_t>(exponent + kBias - 1) << kFractionBits) + whole;
    return exponent > kBias || bits >= kInfinity ? sign | kInfinity : static_cast<std::uint16_t>(sign | bits);
  }
};

}  // namespace stand_in
