// Bitmaps a tile at a time: 64 words, whose positions are listed with vectors, so that no branch depends on a single
// bit. What lies at them fits a first-level cache.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "codec/engine.h"

namespace peel::detail {

inline constexpr std::size_t kTileWords = 64;
inline constexpr std::size_t kTile = kTileWords * 64;

struct Tile {
  std::uint32_t count = 0;
  std::array<std::uint32_t, kTile + 64> positions;  // counted from the first of the tile; engines write up to 64 past
};

// The set bits of words[first .. first + kTileWords), or as many words as there are.
inline void list_tile(const Engine& engine, std::span<const std::uint64_t> words, std::size_t first, Tile& tile) {
  const auto size = static_cast<std::uint32_t>(std::min(kTileWords, words.size() - first));
  tile.count = engine.positions(words.data() + first, size, tile.positions.data());
}

// visit(first word, tile) for all tiles in order. fetch(position) comes a tile earlier for every position: to prefetch
// what visit will write. Without it every store of a sparse sum misses the cache: gathering 2^24 float32 at 1% took 17
// ms of processor instead of 13.6 (four workers on two Ice Lake cores).
template <typename Fetch, typename Visit>
void each_tile(const Engine& engine, std::span<const std::uint64_t> words, Fetch fetch, Visit visit) {
  std::array<Tile, 2> tiles;
  const auto list = [&](std::size_t first, Tile& tile) {
    if (first >= words.size()) return;
    list_tile(engine, words, first, tile);
    for (std::uint32_t i = 0; i < tile.count; ++i) fetch(first * 64 + tile.positions[i]);
  };
  list(0, tiles[0]);
  for (std::size_t first = 0, turn = 0; first < words.size(); first += kTileWords, turn ^= 1) {
    list(first + kTileWords, tiles[turn ^ 1]);
    visit(first, tiles[turn]);
  }
}

}  // namespace peel::detail
