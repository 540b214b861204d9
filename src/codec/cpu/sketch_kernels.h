// The vector kernels of the cpu backend's sketch; cpu/sketch.cpp drives them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "codec/cpu/kernels.h"
#include "codec/engine.h"
#include "peel/geometry.h"

namespace peel::detail::cpu {

// Block and local id of every item of words [first, end), in order; counts[block] += its items. Returns how many.
std::uint64_t place(const Geometry& g, const std::uint64_t* words, std::uint64_t first, std::uint64_t end,
                    std::uint32_t* blocks, std::uint32_t* locals, std::uint64_t* counts);

// Moves `count` items, in order, to their blocks' cursors: local ids, and with them either values (grain 1; null when
// there are none yet) or, with larger grains, where their values lie: first_source, first_source + 1 ...
struct DealTask {
  std::uint64_t count;
  const std::uint32_t* blocks;
  const std::uint32_t* locals;
  std::uint64_t* cursors;
  std::uint32_t* dealt_locals;
  std::size_t element_bytes;
  const std::byte* values;
  std::byte* dealt;
  std::uint64_t first_source;
  std::uint64_t* sources;
};
void deal(const DealTask& task);

// The way back with grain 1: values in item order.
struct CollectTask {
  std::uint64_t count;
  const std::uint32_t* blocks;
  std::uint64_t* cursors;
  std::size_t element_bytes;
  const std::byte* dealt;
  std::byte* values;
};
void collect(const CollectTask& task);

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
  std::uint32_t lost = 0;
};
// Lost items are listed where there is a list.
BlockPeeled peel_block(const Geometry& g, const BlockItems& items, const std::byte* cells, bool estimate,
                       Buffer<std::byte>& scratch, std::vector<std::uint64_t>* lost);

}  // namespace peel::detail::cpu
