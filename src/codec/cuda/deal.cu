// deal: the items of a bitmap, each to the member list of its block, in no order, with its rank.
//
// Grid: a thread block for a run of 16 tiles, 2 for each warp, whose items are listed in shared memory tile by tile.
// Members of a block get their places from one counter, which thousands of additions would queue up for (8 ns each on
// an H200); so a thread block counts its items by block in shared memory first, asks for all places of a block at once,
// and then deals. Sketches with more blocks than fit there have counters enough for their items to do without.
//
// A block with more items than cells keeps the first ones and is not tried. lose: its items are noted as lost; then its
// cells that none of them is in are looked at.
#include <algorithm>

#include "codec/cuda/cell_map.cuh"
#include "codec/cuda/conversion.cuh"
#include "codec/cuda/device_limits.h"
#include "codec/cuda/element_bits.cuh"
#include "codec/cuda/follow.cuh"
#include "codec/cuda/losses.cuh"
#include "codec/cuda/median.cuh"
#include "codec/cuda/tiles.cuh"

namespace peel::cuda::detail {

namespace {

using peel::detail::Cells;
using peel::detail::kSubtables;
using peel::detail::Place;
using peel::detail::place_of;

constexpr unsigned kRunTiles = 16;
constexpr std::uint32_t kCountedBlocks = 4096;

std::uint64_t runs_of(const Geometry& g) { return (tiles_of(g) + kRunTiles - 1) / kRunTiles; }

// visit(item, rank) for the items of a run, by the lanes of the warp that has their tile.
template <typename Visit>
__device__ void each_item(const Geometry& g, const Items& all, std::uint64_t tiles, std::uint64_t run,
                          std::uint16_t* list, Visit&& visit) {
  const unsigned lane = threadIdx.x & 31;
  for (unsigned t = threadIdx.x >> 5; t < kRunTiles; t += kWarps) {
    const std::uint64_t tile = run * kRunTiles + t;
    if (tile >= tiles) return;
    const std::uint64_t first = tile << kTileLog2;
    const std::uint64_t rank = rank_of(all.counts, tile);
    list_tile(
        first, list, [&](std::uint64_t at) { return item_starts(mask_word(all, g.grain_log2, at), g.grain_log2, at); },
        [&](const std::uint16_t* offsets, std::uint32_t count, std::uint32_t before) {
          for (std::uint32_t i = lane; i < count; i += 32) {
            visit((first + offsets[i]) >> g.grain_log2, rank + before + i);
          }
        });
    __syncwarp();
  }
}

__device__ void put(const Geometry& g, const Dealt& dealt, const Place& place, std::uint64_t rank,
                    std::uint32_t number) {
  if (number < dealt.capacity) {
    const std::uint64_t to = std::uint64_t{place.block} * dealt.capacity + number;
    dealt.locals[to] = place.local;
    dealt.ranks[to] = static_cast<std::uint32_t>(rank);
  } else if (number == dealt.capacity) {
    atomicAdd(dealt.counts + std::uint64_t{g.blocks} * kCountStride, 1u);  // one more block that will not be tried
  }
}

// Barriers of the counted way: after the counters are zero, after all items are counted, after all places are known.
template <bool kCounted>
__global__ void __launch_bounds__(kThreads) deal_runs(Geometry g, std::uint64_t tiles, Items all, Dealt dealt) {
  await_ahead();
  extern __shared__ std::uint32_t next[];  // by block: how many members are from here, then where the next one goes
  __shared__ std::uint16_t lists[kWarps][kListed];
  std::uint16_t* list = lists[threadIdx.x >> 5];
  if constexpr (kCounted) {
    for (std::uint32_t b = threadIdx.x; b < g.blocks; b += kThreads) next[b] = 0;
    __syncthreads();
    each_item(g, all, tiles, blockIdx.x, list,
              [&](std::uint64_t item, std::uint64_t) { atomicAdd(next + place_of(g, item).block, 1u); });
    __syncthreads();
    for (std::uint32_t b = threadIdx.x; b < g.blocks; b += kThreads) {
      const std::uint32_t own = next[b];
      if (own != 0) next[b] = atomicAdd(dealt.counts + std::uint64_t{b} * kCountStride, own);
    }
    __syncthreads();
  }
  each_item(g, all, tiles, blockIdx.x, list, [&](std::uint64_t item, std::uint64_t rank) {
    const Place place = place_of(g, item);
    put(g, dealt, place, rank,
        atomicAdd(kCounted ? next + place.block : dealt.counts + std::uint64_t{place.block} * kCountStride, 1u));
  });
}

// Whether there are blocks that were not tried, in a message that is decoded.
__device__ bool has_overfull(const Geometry& g, const Dealt& dealt, const Status* status) {
  return dealt.counts[std::uint64_t{g.blocks} * kCountStride] != 0 &&
         (status->flags & (kOverflow | kCorrupt | kNoRoom)) == 0;
}

template <typename Bits, typename Cell>
__global__ void __launch_bounds__(kThreads)
    lose_runs(Geometry g, std::uint64_t tiles, Conversion how, Items all, std::uint64_t runs, Dealt dealt,
              const Cell* payload, const Bits* x, Bits* values, Losses losses, Status* status) {
  await_ahead();
  __shared__ std::uint16_t lists[kWarps][kListed];
  if (!has_overfull(g, dealt, status)) return;
  for (std::uint64_t r = blockIdx.x; r < runs; r += gridDim.x) {
    each_item(g, all, tiles, r, lists[threadIdx.x >> 5], [&](std::uint64_t item, std::uint64_t rank) {
      const Place place = place_of(g, item);
      if (dealt.counts[std::uint64_t{place.block} * kCountStride] <= dealt.capacity) return;
      note_loss(losses, item, status);
      const Cells at = CellMap(g, place.block).at(place.local);
      for (unsigned j = 0; j < kSubtables; ++j) {
        dealt.locals[std::uint64_t{place.block} * dealt.capacity + j * g.subtable + at.cell[j]] = 1;
      }
      for (std::uint32_t lane = 0; lane < g.grain; ++lane) {
        Bits out = old_value(g, x, item, lane);
        if (losses.estimate) {
          Cell seen[kSubtables];
          for (unsigned j = 0; j < kSubtables; ++j) {
            const std::uint64_t cell = (std::uint64_t{place.block} * kSubtables + j) * g.subtable + at.cell[j];
            seen[j] = with_sign(payload[(cell << g.grain_log2) + lane], at.signs, j, how);
          }
          out = static_cast<Bits>(from_cell(median(seen[0], seen[1], seen[2], how), how));
        }
        values[(rank << g.grain_log2) + lane] = out;
      }
    });
  }
}

// Cells of blocks that were not tried, without members (lose_runs wrote 1 to those that have some): all must be zero.
// Grid: thread blocks take blocks in turn.
template <typename Cell>
__global__ void __launch_bounds__(kThreads)
    check_leftovers(Geometry g, Dealt dealt, const Cell* payload, Status* status) {
  await_ahead();
  if (!has_overfull(g, dealt, status)) return;
  bool zero = true;
  for (std::uint32_t block = blockIdx.x; block < g.blocks; block += gridDim.x) {
    if (dealt.counts[std::uint64_t{block} * kCountStride] <= dealt.capacity) continue;
    const std::uint64_t first = std::uint64_t{block} * dealt.capacity;
    for (std::uint32_t c = threadIdx.x; c < dealt.capacity; c += kThreads) {
      if (dealt.locals[first + c] != 0) continue;
      const Cell* lanes = payload + ((first + c) << g.grain_log2);
      for (std::uint32_t lane = 0; lane < g.grain; ++lane) zero &= lanes[lane] == 0;
    }
  }
  if (!zero) atomicOr(&status->flags, kCorrupt);
}

}  // namespace

cudaError_t deal(const Geometry& g, const Items& all, const Dealt& dealt, cudaStream_t stream) {
  if (g.items == 0) return cudaSuccess;
  const auto runs = static_cast<unsigned>(runs_of(g));
  if (g.blocks <= kCountedBlocks) {
    follow(deal_runs<true>, runs, kThreads, g.blocks * sizeof(std::uint32_t), stream, g, tiles_of(g), all, dealt);
  } else {
    follow(deal_runs<false>, runs, kThreads, 0, stream, g, tiles_of(g), all, dealt);
  }
  return cudaGetLastError();
}

cudaError_t lose_overfull(const Geometry& g, const Conversion& how, const Items& all, const Dealt& dealt,
                          const void* payload, const void* x, void* values, const Losses& losses, Status* status,
                          cudaStream_t stream) {
  if (g.items == 0) return cudaSuccess;
  const std::uint64_t runs = runs_of(g);
  constexpr std::uint64_t kMostBlocks = 2 * kMultiprocessors;  // mostly there is nothing to do
  const auto grid = static_cast<unsigned>(std::min(runs, kMostBlocks));
  const auto blocks = static_cast<unsigned>(std::min<std::uint64_t>(g.blocks, kMostBlocks));
  const auto lose = [&](auto cell) {
    using Cell = decltype(cell);
    const auto* cells = static_cast<const Cell*>(payload);
    with_bits(g.type, [&](auto b) {
      using Bits = decltype(b);
      follow(lose_runs<Bits, Cell>, grid, kThreads, 0, stream, g, tiles_of(g), how, all, runs, dealt, cells,
             static_cast<const Bits*>(x), static_cast<Bits*>(values), losses, status);
    });
    if (how.cells == CellType::float32) return;  // never quite zero
    follow(check_leftovers<Cell>, blocks, kThreads, 0, stream, g, dealt, cells, status);
  };
  if (g.cells == CellType::fixed64) {
    lose(std::uint64_t{});
  } else {
    lose(std::uint32_t{});
  }
  return cudaGetLastError();
}

}  // namespace peel::cuda::detail
