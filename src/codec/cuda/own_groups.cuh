// The groups of one block of a sketch, out of a turned bitmap (turn_bitmap.cu): what a thread block that works on the
// block goes through, four stripes a lane at a time. Local ids count stripe by stripe, so the four bytes of a lane are
// 32 ids that follow each other, and those of a warp are 1,024.
#pragma once

#include "codec/cuda/cell_map.cuh"
#include "codec/cuda/tiles.cuh"

namespace peel::cuda::detail {

struct OwnGroups {
  std::uint32_t block;
  std::uint32_t stripes;
  std::uint32_t fours;
  const std::uint32_t* bytes;

  __device__ OwnGroups(const Geometry& g, const std::uint8_t* turned, std::uint32_t of)
      : block(of),
        stripes(stripes_of(g)),
        fours((stripes_of(g) + 3) / 4),
        bytes(reinterpret_cast<const std::uint32_t*>(turned + std::uint64_t{of} * turned_pitch(g))) {}

  // The bits of the four stripes from 4 `four` on; none past the end.
  __device__ std::uint32_t bits(std::uint32_t four) const { return four < fours ? bytes[four] : 0; }

  // The group of a stripe.
  __device__ std::uint64_t group(const Geometry& g, std::uint32_t stripe) const {
    const std::uint32_t turn = peel::detail::rotation(g, stripe);
    const std::uint32_t slot = block >= turn ? block - turn : block + g.blocks - turn;
    return std::uint64_t{stripe} * g.blocks + slot;
  }
};

}  // namespace peel::cuda::detail
