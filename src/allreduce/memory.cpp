#include "allreduce/memory.h"

#include <algorithm>

namespace peel::detail {

void ChunkMemory::learn(std::uint64_t union_items, std::uint64_t own) {
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
void ChunkMemory::learn_magnitude(const std::optional<std::int32_t>& seen) {
  if (!seen) return;
  has_magnitude = 1;
  magnitude = *seen;
}

// Twice the largest change of late, at least 2%: a plan that is a little too large costs bytes, one that is too small
// costs a repair.
std::uint32_t ChunkMemory::headroom_permille() const { return std::clamp(2 * variation_permille, 20u, 500u); }

void forget(Collective& what) {
  what.memory = Memory::host;
  what.data = {};
  what.send.clear();
  what.into.clear();
  what.even = false;
  what.scratch = {};
  what.fetch.clear();
  what.likely_bytes = 0;
}

void Slot::prepare(unsigned workers) {
  shares.resize(workers);
  parcels.resize(workers);
  for (Collective& one : collectives) {
    forget(one);
    one.received.resize(workers);
  }
}

std::size_t Slot::memory_bytes() const {
  std::size_t bytes = support.memory_bytes() + workspace.memory_bytes() + message.index.capacity() * 8 +
                      message.payload.capacity() + list.capacity() * 8 + words.capacity() * 8 + values.capacity() +
                      own_parcel.capacity() + items.capacity() * 8;
  if (device != nullptr) bytes += device->memory_bytes();
  for (const ItemMemory& one : shares) bytes += one.words.capacity() * 8 + one.positions.capacity() * 4;
  for (const auto& one : parcels) bytes += one.capacity();
  for (const Collective& one : collectives) {
    for (const auto& buffer : one.received) bytes += buffer.capacity();
  }
  return bytes;
}

}  // namespace peel::detail
