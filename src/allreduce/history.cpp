#include "allreduce/history.h"

#include <algorithm>

namespace peel::detail {

void ChunkHistory::learn(std::uint64_t union_items, std::uint64_t own) {
  if (steps != 0) {
    const std::uint64_t change = union_items > items ? union_items - items : items - union_items;
    const std::uint64_t permille = std::min<std::uint64_t>(1000, change * 1000 / std::max<std::uint64_t>(items, 1));
    variation_permille = std::max(static_cast<std::uint32_t>(permille), variation_permille - variation_permille / 8);
  }
  ++steps;
  ++steady;
  items = union_items;
  own_items = own;
}

// Follows at once, up and down: a scale keeps three bits of room (sketch.cpp), and what outgrows them is redone.
void ChunkHistory::learn_magnitude(const std::optional<std::int32_t>& seen) {
  if (!seen) return;
  has_magnitude = 1;
  magnitude = *seen;
}

// Twice the largest change of late, at least 2%: a plan that is a little too large costs bytes, one that is too small
// costs a repair.
std::uint32_t ChunkHistory::headroom_permille() const { return std::clamp(2 * variation_permille, 20u, 500u); }

}  // namespace peel::detail
