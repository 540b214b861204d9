// Sets of items over some positions, with values: what item messages, owner maps and adders work on.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "draw.h"
#include "items/item_message.h"
#include "peel/buffer.h"

namespace peel::testing {

struct DrawnItems {
  std::uint64_t positions = 0;
  Buffer<std::uint64_t> words;
  Buffer<std::byte> values;
  std::uint64_t items = 0;

  [[nodiscard]] bool has(std::uint64_t position) const { return (words[position / 64] >> (position % 64) & 1) != 0; }
  [[nodiscard]] detail::ItemView view() const { return {.words = words, .values = values.data(), .items = items}; }
};

// `permille` of all positions; values are any bytes.
inline DrawnItems draw_items(std::uint64_t positions, std::size_t item_bytes, std::uint64_t permille,
                             SeededDraw& random) {
  DrawnItems drawn;
  drawn.positions = positions;
  drawn.words.resize((positions + 63) / 64);
  drawn.words.fill_zero();
  for (std::uint64_t p = 0; p < positions; ++p) {
    if (random.below(1000) >= permille) continue;
    drawn.words[p / 64] |= std::uint64_t{1} << (p % 64);
    ++drawn.items;
  }
  drawn.values.resize(drawn.items * item_bytes);
  for (std::size_t b = 0; b < drawn.values.size(); ++b) drawn.values[b] = static_cast<std::byte>(random.below(256));
  return drawn;
}

inline bool same_items(const detail::ItemView& view, const DrawnItems& drawn, std::size_t item_bytes) {
  const std::size_t words = (drawn.positions + 63) / 64;
  return view.items == drawn.items && view.words.size() >= words &&
         (words == 0 || std::memcmp(view.words.data(), drawn.words.data(), words * sizeof(std::uint64_t)) == 0) &&
         (drawn.items == 0 || std::memcmp(view.values, drawn.values.data(), drawn.items * item_bytes) == 0);
}

}  // namespace peel::testing
