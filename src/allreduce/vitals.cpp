#include "allreduce/vitals.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "allreduce/vital_words.h"
#include "codec/values.h"

namespace peel::detail {

namespace {

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
  if (!vitals.finite) words[0] |= kNotFiniteBit;
  if (!vitals.magnitude) return;
  const std::int32_t bit = magnitude_bit(type, *vitals.magnitude);
  words[1 + static_cast<std::size_t>(bit) / 64] = std::uint64_t{1} << (bit % 64);
}

Vitals read_vitals(ElementType type, std::span<const std::uint64_t, kVitalWords> words) {
  Vitals vitals;
  vitals.finite = (words[0] & kNotFiniteBit) == 0;
  if (const std::uint64_t counts = words[0] & ~kNotFiniteBit; counts != 0) {
    vitals.items = count_of_bit(static_cast<std::uint32_t>(std::bit_width(counts)) - 1);
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
