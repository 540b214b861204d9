// What every worker must know of all others to plan the next step, in words that combine by OR, so that it travels with
// an index and costs no round: how many items a worker has, and how large its values are. Each is one bit out of many,
// its position a logarithm; the highest bit of the OR is the largest of all workers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "peel/types.h"

namespace peel::detail {

inline constexpr std::size_t kVitalWords = 9;  // one for the count, eight for the magnitude

struct Vitals {
  std::uint64_t items = 0;                // of the worker with most: up to 41% above the truth, never below
  std::optional<std::int32_t> magnitude;  // every |value| is below 2^magnitude; none: all are zero
  bool finite = true;                     // on every worker
};

// The largest magnitude among values, and whether all are finite.
struct Extremes {
  bool finite = true;
  std::optional<std::int32_t> magnitude;
};
Extremes find_extremes(ElementType type, std::span<const std::byte> values);

void write_vitals(ElementType type, const Vitals& vitals, std::span<std::uint64_t, kVitalWords> words);
Vitals read_vitals(ElementType type, std::span<const std::uint64_t, kVitalWords> words);

}  // namespace peel::detail
