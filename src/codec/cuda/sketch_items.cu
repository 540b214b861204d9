// sketch_items: a Count Sketch by adding in device memory, for any grain, type and cells.
//
// Grid: a warp for each tile; every set position of it is added to its three cells.
// With a grain above 1 the lanes of an item lie side by side in the array and in the cells, so that a warp's additions
// share sectors. Good while the cells stay in the L2 cache; larger sketches of single elements are made block by block
// in shared memory (sketch_blocks.cu).
#include "codec/cuda/cell_map.cuh"
#include "codec/cuda/conversion.cuh"
#include "codec/cuda/element_bits.cuh"
#include "codec/cuda/tiles.cuh"

namespace peel::cuda::detail {

namespace {

using peel::detail::Cells;
using peel::detail::kSubtables;
using peel::detail::Place;
using peel::detail::place_of;

template <typename Cell>
__device__ void add_position(const Geometry& g, const Conversion& how, std::uint64_t position, std::uint64_t bits,
                             Cell* cells) {
  const std::uint64_t item = position >> g.grain_log2;
  const std::uint32_t lane = static_cast<std::uint32_t>(position) & (g.grain - 1);
  const Place place = place_of(g, item);
  const Cells at = CellMap(g, place.block).at(place.local);
  const Cell cell = to_cell<Cell>(bits, how);
  if (cell == 0) return;
#pragma unroll
  for (unsigned j = 0; j < kSubtables; ++j) {
    const std::uint64_t to = (std::uint64_t{place.block} * kSubtables + j) * g.subtable + at.cell[j];
    add_to_cell(cells + (to << g.grain_log2) + lane, with_sign(cell, at.signs, j, how), how);
  }
}

template <typename Bits, typename Cell>
__global__ void __launch_bounds__(kThreads)
    add_tiles(Geometry g, std::uint64_t tiles, Conversion how, const Bits* __restrict__ x,
              const Bits* __restrict__ values, const Bits* __restrict__ kept, Items own, Cell* __restrict__ cells,
              const Status* status) {
  __shared__ std::uint16_t lists[kWarps][kListed];
  const std::uint64_t tile = own_tile();
  if (tile >= tiles) return;
  const std::uint64_t first = tile << kTileLog2;
  const std::uint64_t rank = values == nullptr ? 0 : rank_of(own.counts, tile) << g.grain_log2;
  const Bits* here = nullptr;  // the tile's elements, where they were kept
  if (kept != nullptr && items_of_tile(own.counts, tile, tiles, status) <= kKept) here = kept + tile * kKept;
  list_tile(
      first, lists[threadIdx.x >> 5], [&](std::uint64_t at) { return mask_word(own, g.grain_log2, at); },
      [&](const std::uint16_t* list, std::uint32_t count, std::uint32_t before) {
        for (std::uint32_t i = threadIdx.x & 31; i < count; i += 32) {
          const std::uint64_t position = first + list[i];
          const std::uint64_t element = position - g.lead;
          if (element >= g.elements) continue;
          Bits value;
          if (values != nullptr) {
            value = values[rank + before + i];
          } else {
            value = here != nullptr ? here[before + i] : x[element];
          }
          add_position(g, how, position, value, cells);
        }
      });
}

}  // namespace

cudaError_t sketch_items(const Geometry& g, const Conversion& how, const Source& source, const Items& own,
                         void* payload, const Status* status, cudaStream_t stream) {
  if (tiles_of(g) == 0) return cudaSuccess;
  with_bits(g.type, [&](auto b) {
    using Bits = decltype(b);
    const auto* x = static_cast<const Bits*>(source.x);
    const auto* values = static_cast<const Bits*>(source.values);
    const auto* kept = static_cast<const Bits*>(source.kept);
    if (how.cells == CellType::fixed64) {
      add_tiles<<<tile_blocks(g), kThreads, 0, stream>>>(g, tiles_of(g), how, x, values, kept, own,
                                                         static_cast<std::uint64_t*>(payload), status);
    } else {
      add_tiles<<<tile_blocks(g), kThreads, 0, stream>>>(g, tiles_of(g), how, x, values, kept, own,
                                                         static_cast<std::uint32_t*>(payload), status);
    }
  });
  return cudaGetLastError();
}

}  // namespace peel::cuda::detail
