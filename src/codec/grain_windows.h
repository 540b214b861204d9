// Which windows of an array best_grain looks at, and what it makes of their counts; the same on a GPU.
#pragma once

#include <cstdint>
#include <span>

#include "peel/grain.h"
#include "plan/integer_math.h"
#include "plan/mapping.h"

namespace peel::detail {

inline constexpr std::uint64_t kGrainLead =
    1024;  // positions before the array, so that a partial first grain has a start
inline constexpr std::uint64_t kGrainWindow = 16384;
inline constexpr std::uint64_t kMostWindows = 1024;
inline constexpr std::uint64_t kGrainCountsInAll = 2047;  // grain g, phase p at g - 1 + p

inline std::uint64_t windows_of(std::uint64_t elements) {
  return (elements + kGrainLead + kGrainWindow - 1) / kGrainWindow;
}
inline std::uint64_t windows_taken(std::uint64_t windows) { return windows < kMostWindows ? windows : kMostWindows; }

// The position at which window i of `taken` starts: stratum i of as many equal ones, and a window at random within it.
// No product overflows: arrays have at most 2^43 elements, so 2^29 windows.
PEEL_HOST_DEVICE std::uint64_t window_start(std::uint64_t i, std::uint64_t windows, std::uint64_t taken) {
  const std::uint64_t from = windows * i / taken;
  const std::uint64_t to = windows * (i + 1) / taken;
  return (from + high_product(mix64(i + 1), to - from)) * kGrainWindow;
}

// What was counted in `taken` of `windows` windows, for all of them.
inline std::uint64_t scaled_up(std::uint64_t count, std::uint64_t taken, std::uint64_t windows) {
  return static_cast<std::uint64_t>(static_cast<Wide>(count) * windows / (taken == 0 ? 1 : taken));
}

// The smallest message, from what was counted in `taken` of `windows` windows.
GrainChoice choose_grain(std::span<const std::uint64_t> counts, std::uint64_t taken, std::uint64_t windows,
                         const PlanOptions& options);

}  // namespace peel::detail
