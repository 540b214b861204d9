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

bool StateData::is_of(const ArrayIdentity& array) const {
  const std::uint32_t grain = options.grain;
  return elements == array.elements && type == array.type && workers == array.workers &&
         chunks.size() == array.chunks && std::all_of(chunks.begin(), chunks.end(), [&](const ChunkHistory& history) {
           return grain == 0 || (history.grain == grain && history.phase == 0);
         });
}

void StateData::remember(const ArrayIdentity& array) {
  if (!is_of(array)) forget(array.chunks);
  elements = array.elements;
  type = array.type;
  workers = array.workers;
}

void StateData::forget(std::size_t chunks_of_array) {
  unasked = 0;
  chunks.assign(chunks_of_array, {});
  for (ChunkHistory& history : chunks) history.grain = std::max(1u, options.grain);
}

bool StateData::take_unasked_step(std::uint64_t terms) {
  if (unasked == 0 || agreed_terms != terms) return false;
  --unasked;
  return true;
}

void StateData::trust(std::uint64_t terms) {
  unasked = options.unasked_steps;
  agreed_terms = terms;
}

}  // namespace peel::detail
