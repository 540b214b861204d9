// Which bits of vitals stand for what: for the host and for kernels.
#pragma once

#include <cstdint>

#include "peel/types.h"
#include "plan/mapping.h"

namespace peel::detail {

inline constexpr std::int32_t kMagnitudeBits = 512;
inline constexpr std::uint64_t kNotFiniteBit = std::uint64_t{1} << 63;  // beside the 63 bits of the count

// Bit b stands for magnitudes up to first + b * step: one exponent each for float32 and the 16-bit types, five for
// float64, whose exponents would not fit otherwise.
struct MagnitudeScale {
  std::int32_t first;
  std::int32_t step;
};
PEEL_HOST_DEVICE MagnitudeScale magnitude_scale(ElementType type) {
  return type == ElementType::float64 ? MagnitudeScale{-1280, 5} : MagnitudeScale{-256, 1};
}

// The bit of values below 2^magnitude.
PEEL_HOST_DEVICE std::int32_t magnitude_bit(ElementType type, std::int32_t magnitude) {
  const MagnitudeScale scale = magnitude_scale(type);
  const std::int32_t bit = (magnitude - scale.first + scale.step - 1) / scale.step;
  return bit < 0 ? 0 : bit >= kMagnitudeBits ? kMagnitudeBits - 1 : bit;
}

// What bit b of the count stands for: 2^(b/2), rounded up, in integers so that no two machines differ.
PEEL_HOST_DEVICE std::uint64_t count_of_bit(std::uint32_t bit) {
  const std::uint64_t power = std::uint64_t{1} << (bit / 2);
  return bit % 2 == 0 ? power : power + (power * 54 + 127) / 128;  // 54 / 128 = 0.422: a little above sqrt(2) - 1
}

// The first that is not below.
PEEL_HOST_DEVICE std::uint32_t count_bit(std::uint64_t items) {
  std::uint32_t bit = 0;
  while (bit < 62 && count_of_bit(bit) < items) ++bit;
  return bit;
}

}  // namespace peel::detail
