#include "allreduce/vitals.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "codec/values.h"

namespace peel::detail {

namespace {

// Bit b stands for magnitudes up to first + b * step: one exponent each for float32 and the 16-bit types, five for
// float64, whose exponents would not fit otherwise.
struct MagnitudeScale {
  std::int32_t first;
  std::int32_t step;
};
MagnitudeScale magnitude_scale(ElementType type) {
  return type == ElementType::float64 ? MagnitudeScale{-1280, 5} : MagnitudeScale{-256, 1};
}

constexpr std::int32_t kMagnitudeBits = 512;
constexpr std::uint64_t kNotFinite = std::uint64_t{1} << 63;  // beside the 63 bits of the count

// What bit b of the count stands for: 2^(b/2), rounded up, in integers so that no two machines differ.
std::uint64_t count_of(std::uint32_t bit) {
  const std::uint64_t power = std::uint64_t{1} << (bit / 2);
  return bit % 2 == 0 ? power : power + (power * 54 + 127) / 128;  // 54 / 128 = 0.422: a little above sqrt(2) - 1
}

// The first that is not below.
std::uint32_t count_bit(std::uint64_t items) {
  std::uint32_t bit = 0;
  while (bit < 62 && count_of(bit) < items) ++bit;
  return bit;
}

// Bits of a float without its sign order as magnitudes do, NaN and infinity above all.
template <typename T>
Extremes extremes_of(const T* values, std::size_t count) {
  using U = Bits<T>;
  constexpr U kMagnitude = static_cast<U>(~U{0}) >> 1;
  U largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    largest = std::max(largest, static_cast<U>(std::bit_cast<U>(values[i]) & kMagnitude));
  }
  if (largest == 0) return {};
  const double value = widen(std::bit_cast<T>(largest));
  if (!std::isfinite(value)) return {.finite = false, .magnitude = {}};
  return {.finite = true, .magnitude = std::ilogb(value) + 1};
}

}  // namespace

Extremes find_extremes(ElementType type, std::span<const std::byte> values) {
  return with_element(type, [&](auto t) -> Extremes {
    using T = decltype(t);
    if constexpr (std::is_integral_v<T>) {
      return {};
    } else {
      return extremes_of(reinterpret_cast<const T*>(values.data()), values.size() / sizeof(T));
    }
  });
}

void write_vitals(ElementType type, const Vitals& vitals, std::span<std::uint64_t, kVitalWords> words) {
  std::fill(words.begin(), words.end(), 0);
  words[0] = vitals.items == 0 ? 0 : std::uint64_t{1} << count_bit(vitals.items);
  if (!vitals.finite) words[0] |= kNotFinite;
  if (!vitals.magnitude) return;
  const MagnitudeScale scale = magnitude_scale(type);
  const std::int32_t bit =
      std::clamp((*vitals.magnitude - scale.first + scale.step - 1) / scale.step, 0, kMagnitudeBits - 1);
  words[1 + static_cast<std::size_t>(bit) / 64] = std::uint64_t{1} << (bit % 64);
}

Vitals read_vitals(ElementType type, std::span<const std::uint64_t, kVitalWords> words) {
  Vitals vitals;
  vitals.finite = (words[0] & kNotFinite) == 0;
  if (const std::uint64_t counts = words[0] & ~kNotFinite; counts != 0) {
    vitals.items = count_of(static_cast<std::uint32_t>(std::bit_width(counts)) - 1);
  }
  const MagnitudeScale scale = magnitude_scale(type);
  for (std::int32_t w = 7; w >= 0; --w) {
    if (words[1 + static_cast<std::size_t>(w)] == 0) continue;
    const std::int32_t bit = w * 64 + 63 - std::countl_zero(words[1 + static_cast<std::size_t>(w)]);
    vitals.magnitude = scale.first + bit * scale.step;
    break;
  }
  return vitals;
}

}  // namespace peel::detail
