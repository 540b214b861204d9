// Which grain and phase make the smallest message for a given support.
#pragma once

#include <cstdint>
#include <span>

#include "peel/gradient.h"
#include "peel/plan.h"

namespace peel {

struct GrainChoice {
  std::uint32_t grain = 1;
  std::uint32_t phase = 0;
  std::uint64_t expected_items = 0;  // exact where everything was counted, else scaled up from the windows
  std::uint64_t message_bytes = 0;   // of the plan that `options` make with this grain
  bool sampled = false;
  double seconds = 0;  // what the choice itself took
};

// Counts the non-empty grains at every grain and phase, on sampled windows of large arrays, and picks the smallest
// message under `options` (elements, type, codec, cells, index and workers matter; grain and expected_items do not).
// The same support gives the same choice on every worker.
GrainChoice best_grain(ConstDense x, const PlanOptions& options);

// The same from a bitmap with one bit per element, lowest bit first.
GrainChoice best_grain(std::span<const std::uint64_t> support, const PlanOptions& options);

}  // namespace peel
