// The vector kernels of the cpu backend's sketch; cpu/sketch.cpp drives them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "codec/cpu/kernels.h"
#include "codec/engine.h"
#include "peel/geometry.h"

namespace peel::detail::cpu {

// Dealing: items of words [first, end), in order, to their blocks.

// counts[block] += its items.
void deal_count(const Geometry& g, const std::uint64_t* words, std::uint64_t first, std::uint64_t end,
                std::uint64_t* counts);

// Writes each item's local id at its block's cursor and moves that on. With grain 1, moves its value along
// (values -> dealt; both may be null); with larger grains sources[...] gets source, source + 1 ... in item order.
void deal(const Geometry& g, const std::uint64_t* words, std::uint64_t first, std::uint64_t end, std::uint64_t* cursors,
          std::uint32_t* locals, const std::byte* values, std::byte* dealt, std::uint64_t source,
          std::uint64_t* sources);

// The way back with grain 1: dealt -> values in item order.
void collect(const Geometry& g, const std::uint64_t* words, std::uint64_t first, std::uint64_t end,
             std::uint64_t* cursors, const std::byte* dealt, std::byte* values);

// One block's items: `count` local ids, and their values, dealt (grain 1) or by source.
struct BlockItems {
  std::uint32_t block;
  std::uint32_t count;
  const std::uint32_t* locals;
  std::byte* dealt;              // grain 1: elements, in and out
  const std::uint64_t* sources;  // else: which item of the array of cells it is: a rank in `to` (decode), or
  const std::byte* const* from;  // range << 48 | rank, a rank in from[range] (encode)
  std::byte* to;
};

// Adds the items to the block's cells, which it clears first. False if a value did not fit.
bool sketch_block(const Geometry& g, const BlockItems& items, std::byte* cells, Buffer<std::byte>& scratch);

// Peels the block; values go to `dealt` or `to`. Returns the rounds; appends lost items, unordered.
struct BlockPeeled {
  std::uint32_t rounds = 0;
  bool clean = true;
};
BlockPeeled peel_block(const Geometry& g, const BlockItems& items, const std::byte* cells, bool estimate,
                       Buffer<std::byte>& scratch, std::vector<std::uint64_t>& lost);

}  // namespace peel::detail::cpu
