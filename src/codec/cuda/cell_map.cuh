// cells_of (plan/mapping.h) for many items of one block: what depends on the block alone is computed once.
#pragma once

#include "peel/geometry.h"
#include "plan/mapping.h"

namespace peel::cuda::detail {

struct CellMap {
  std::uint32_t subtable;
  std::uint32_t bits;
  std::uint32_t room;
  std::uint32_t key;

  __device__ CellMap(const peel::detail::Geometry& g, std::uint32_t block)
      : subtable(g.subtable),
        bits(g.permutation_bits),
        room(peel::detail::digit_room(g.subtable, g.permutation_bits)),
        key(peel::detail::block_key(g, block)) {}

  __device__ peel::detail::Cells at(std::uint32_t local) const {
    return peel::detail::cells_with_room(subtable, bits, room, key, local);
  }
};

// Blocks of 1,626 cells a subtable and more, as all large sketches have them: permutations of 32 bits, and shifts and
// masks are constants.
inline bool has_full_blocks(const peel::detail::Geometry& g) {
  return peel::detail::digit_room(g.subtable, g.permutation_bits) != 0;
}

struct FullCellMap : CellMap {
  using CellMap::CellMap;

  __device__ peel::detail::Cells at(std::uint32_t local) const {
    return peel::detail::cells_with_room(subtable, 32, room, key, local);
  }
};

}  // namespace peel::cuda::detail
