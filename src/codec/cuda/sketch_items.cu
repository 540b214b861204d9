// sketch_items: a Count Sketch by adding in device memory, for any grain, type and cells.
//
// Grid: a warp for each tile; every set position of it is added to its three cells.
// With a grain above 1 the lanes of an item lie side by side in the array and in the cells, so that a warp's additions
// share sectors; each lane finds the cells of one item, and then all lanes add one item after another, or several at
// once where they are short. Finding the cells for every element took 100 instead of 48 us for 3.5% of 2^27 float32 in
// rows of 64 (H200). Good while the cells stay in the L2 cache; larger sketches of single elements are made block by
// block in shared memory (sketch_blocks.cu).
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

constexpr unsigned kAhead = 4;

template <typename Cell>
__device__ void add_everywhere(const Geometry& g, const Conversion& how, std::uint32_t block, const Cells& at,
                               std::uint32_t lane, std::uint64_t bits, Cell* cells) {
  const Cell cell = to_cell<Cell>(bits, how);
  if (cell == 0) return;
#pragma unroll
  for (unsigned j = 0; j < kSubtables; ++j) {
    const std::uint64_t to = (std::uint64_t{block} * kSubtables + j) * g.subtable + at.cell[j];
    add_to_cell(cells + (to << g.grain_log2) + lane, with_sign(cell, at.signs, j, how), how);
  }
}

template <typename Bits, typename Cell>
__global__ void __launch_bounds__(kThreads)
    add_tiles(Geometry g, std::uint64_t tiles, Conversion how, const Bits* __restrict__ x,
              const Bits* __restrict__ values, const Bits* __restrict__ kept, std::uint32_t kept_room, Items own,
              Cell* __restrict__ cells, const Status* status) {
  __shared__ std::uint16_t lists[kWarps][kListed];
  const std::uint64_t tile = own_tile();
  if (tile >= tiles) return;
  const std::uint64_t first = tile << kTileLog2;
  const std::uint64_t rank = values == nullptr ? 0 : rank_of(own.counts, tile);
  const Bits* here = nullptr;  // the tile's elements, where they were kept
  if (kept != nullptr && items_of_tile(own.counts, tile, tiles, status) <= kept_room) here = kept + tile * kept_room;
  list_tile(
      first, lists[threadIdx.x >> 5], [&](std::uint64_t at) { return mask_word(own, 0, at); },
      [&](const std::uint16_t* list, std::uint32_t count, std::uint32_t before) {
        for (std::uint32_t i = threadIdx.x & 31; i < count; i += 32) {
          const std::uint64_t item = first + list[i];
          if (item >= g.elements) continue;
          Bits value;
          if (values != nullptr) {
            value = values[rank + before + i];
          } else {
            value = here != nullptr ? here[before + i] : x[item];
          }
          const Place place = place_of(g, item);
          add_everywhere(g, how, place.block, CellMap(g, place.block).at(place.local), 0, value, cells);
        }
      });
}

// The same of items with several elements. What a lane found out about its item goes to the others in three words.
template <typename Bits, typename Cell>
__global__ void __launch_bounds__(kThreads)
    add_vectors(Geometry g, std::uint64_t tiles, Conversion how, const Bits* __restrict__ x,
                const Bits* __restrict__ values, Items own, Cell* __restrict__ cells) {
  __shared__ std::uint16_t lists[kWarps][kListed];
  const std::uint64_t tile = own_tile();
  if (tile >= tiles) return;
  const unsigned lane = threadIdx.x & 31;
  const std::uint64_t first = tile << kTileLog2;
  const std::uint64_t rank = values == nullptr ? 0 : rank_of(own.counts, tile);

  // Of up to 32 items, 32 elements at a time, a few of which are under way.
  const auto add_items = [&](const std::uint16_t* list, std::uint32_t count, std::uint32_t before) {
    Place place{};
    Cells found{};
    if (lane < count) {
      place = place_of(g, (first + list[lane]) >> g.grain_log2);
      found = CellMap(g, place.block).at(place.local);
    }
    const std::uint32_t end = count << g.grain_log2;
    for (std::uint32_t base = 0; base < end; base += 32 * kAhead) {
      Bits value[kAhead];
#pragma unroll
      for (unsigned k = 0; k < kAhead; ++k) {
        const std::uint32_t i = base + k * 32 + lane;
        const std::uint64_t element = i < end ? first + list[i >> g.grain_log2] + (i & (g.grain - 1)) - g.lead : ~0ull;
        value[k] = 0;
        if (element < g.elements) {
          value[k] = values != nullptr ? values[((rank + before) << g.grain_log2) + i] : x[element];
        }
      }
#pragma unroll
      for (unsigned k = 0; k < kAhead; ++k) {
        const std::uint32_t i = base + k * 32 + lane;
        const unsigned from = i >> g.grain_log2 & 31;
        const std::uint32_t block = __shfl_sync(kAll, place.block, from);
        const std::uint32_t two = __shfl_sync(kAll, found.cell[0] | found.cell[1] << 16, from);
        const std::uint32_t rest = __shfl_sync(kAll, found.cell[2] | found.signs << 16, from);
        const Cells at{{two & 0xFFFF, two >> 16, rest & 0xFFFF}, rest >> 16};
        add_everywhere(g, how, block, at, i & (g.grain - 1), value[k], cells);  // nothing where it is zero
      }
    }
  };
  list_tile(
      first, lists[threadIdx.x >> 5],
      [&](std::uint64_t at) { return item_starts(mask_word(own, g.grain_log2, at), g.grain_log2, at); },
      [&](const std::uint16_t* list, std::uint32_t count, std::uint32_t before) {
        for (std::uint32_t i = 0; i < count; i += 32) add_items(list + i, min(count - i, 32u), before + i);
      });
}

template <typename Bits, typename Cell>
void launch(const Geometry& g, const Conversion& how, const Source& source, const Items& own, Cell* cells,
            const Status* status, cudaStream_t stream) {
  const auto* x = static_cast<const Bits*>(source.x);
  const auto* values = static_cast<const Bits*>(source.values);
  if (g.grain == 1) {
    add_tiles<<<tile_blocks(g), kThreads, 0, stream>>>(g, tiles_of(g), how, x, values,
                                                       static_cast<const Bits*>(source.kept.values), source.kept.room,
                                                       own, cells, status);
  } else {
    add_vectors<<<tile_blocks(g), kThreads, 0, stream>>>(g, tiles_of(g), how, x, values, own, cells);
  }
}

}  // namespace

cudaError_t sketch_items(const Geometry& g, const Conversion& how, const Source& source, const Items& own,
                         void* payload, const Status* status, cudaStream_t stream) {
  if (tiles_of(g) == 0) return cudaSuccess;
  with_bits(g.type, [&](auto b) {
    using Bits = decltype(b);
    if (how.cells == CellType::fixed64) {
      launch<Bits>(g, how, source, own, static_cast<std::uint64_t*>(payload), status, stream);
    } else {
      launch<Bits>(g, how, source, own, static_cast<std::uint32_t*>(payload), status, stream);
    }
  });
  return cudaGetLastError();
}

}  // namespace peel::cuda::detail
