// The resolved numbers of a plan as plain data, for backends: what a kernel gets by value. Users want peel/plan.h.
#pragma once

#include <cstdint>

#include "peel/types.h"

namespace peel::detail {

struct Geometry {
  std::uint64_t elements = 0;
  std::uint64_t items = 0;           // item positions in the array, the partial first and last ones included
  std::uint64_t expected_items = 0;  // advisory: not part of what workers must agree on
  std::uint64_t seed = 0;
  std::uint32_t workers = 1;
  std::int32_t scale = 0;
  std::uint32_t grain = 1;
  std::uint32_t grain_log2 = 0;
  std::uint32_t phase = 0;
  std::uint32_t lead = 0;  // elements that item 0 lacks at its front: (grain - phase) mod grain
  ElementType type = ElementType::float32;
  Codec codec = Codec::packed;
  CellType cells = CellType::native;
  Index index = Index::bitmap;

  // sketch
  std::uint32_t group_log2 = 0;  // items of a group, dealt to one block together
  std::uint32_t blocks = 0;
  std::uint32_t subtable = 0;          // cells of each of a block's three subtables
  std::uint32_t permutation_bits = 0;  // width of the permutation that spreads local ids
  std::uint64_t block_inverse = 0;     // ceil(2^64 / blocks), to divide by blocks; 0 when there is one block

  // Bloom index
  std::uint64_t bloom_rows = 0;  // of 512 bits
  std::uint32_t bloom_hashes = 0;
};

}  // namespace peel::detail
