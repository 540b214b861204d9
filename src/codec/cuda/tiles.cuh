// How kernels cut an array, and how an item finds its rank.
//
// Nomenclature. Kernels work on positions: position q is element q - lead, so that items begin at multiples of the
// grain whatever the phase; positions outside the array read as zero and are never written. A tile is 4,096 positions,
// a whole number of items at every grain, and one warp works on it, without waiting for others. A chunk is a quarter of
// it: 32 mask words of 32 positions, one with each lane. A super is 256 tiles.
//
// Ranks. Whoever counts the items of tiles (mark.cu, count.cu) also adds them up: the thread block that is the last of
// a super replaces the counts of its tiles by sums over those before in the super, and the one that is the last of all
// does the same to the supers. So the rank of a tile's first item is two loads away, and no kernel is spent on a scan
// (on an H200 10 us beside the 130 us that a pass over 2^27 float32 takes, and as long as the pass itself for a bucket
// of 25 MiB).
#pragma once

#include <cstdint>
#include <cub/block/block_scan.cuh>

#include "codec/cuda/kernels.h"
#include "plan/mapping.h"

namespace peel::cuda::detail {

using peel::detail::Geometry;

inline constexpr int kThreads = 256;
inline constexpr int kWarps = kThreads / 32;
inline constexpr std::uint32_t kTile = kTilePositions;
inline constexpr std::uint32_t kTileLog2 = 12;
inline constexpr std::uint32_t kChunk = 1024;
inline constexpr unsigned kChunks = kTile / kChunk;
inline constexpr std::uint32_t kSuperLog2 = 8;
inline constexpr unsigned kAll = 0xFFFFFFFFu;

static_assert(kTile == 1u << kTileLog2 && kSuperTiles == 1u << kSuperLog2);
static_assert(kSuperTiles == kThreads, "a thread adds up one tile of a super");

// The tile of this warp, in kernels that are launched with tile_blocks().
__device__ inline std::uint64_t own_tile() { return std::uint64_t{blockIdx.x} * kWarps + (threadIdx.x >> 5); }

// ---- adding up

struct Closing {
  using Scan32 = cub::BlockScan<std::uint32_t, kThreads>;
  using Scan64 = cub::BlockScan<std::uint64_t, kThreads>;
  union {
    typename Scan32::TempStorage scan32;
    typename Scan64::TempStorage scan64;
  };
  bool last;
};

// Called by all threads of a block that has stored the counts of so many tiles, block after block. The barrier and
// thread 0's fence make them visible to the block that is last; `total` is called with the sum of all, once.
template <unsigned kTilesOfBlock = kWarps, typename Total>
__device__ void close_tiles(const Counts& counts, std::uint64_t tiles, Closing& shared, Total&& total) {
  static_assert(kSuperTiles % kTilesOfBlock == 0);
  const std::uint64_t first = std::uint64_t{blockIdx.x} * kTilesOfBlock;
  const std::uint64_t super = first >> kSuperLog2;
  const std::uint64_t supers = (tiles + kSuperTiles - 1) >> kSuperLog2;
  const std::uint64_t left = tiles - (super << kSuperLog2);
  const auto in_super = static_cast<unsigned>(left < kSuperTiles ? left : kSuperTiles);
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    shared.last = atomicAdd(counts.done + super, 1u) + 1 == (in_super + kTilesOfBlock - 1) / kTilesOfBlock;
  }
  __syncthreads();
  if (!shared.last) return;
  __threadfence();
  std::uint32_t* own = counts.tiles + (super << kSuperLog2) + threadIdx.x;
  std::uint32_t before = 0;
  std::uint32_t sum = 0;
  Closing::Scan32(shared.scan32).ExclusiveSum(threadIdx.x < in_super ? __ldcg(own) : 0, before, sum);
  if (threadIdx.x < in_super) *own = before;
  if (threadIdx.x == 0) {
    counts.supers[super] = sum;
    __threadfence();
    shared.last = atomicAdd(counts.done + supers, 1u) + 1 == supers;
  }
  __syncthreads();
  if (!shared.last) return;
  __threadfence();
  std::uint64_t running = 0;
  for (std::uint64_t base = 0; base < supers; base += kThreads) {
    auto* one = reinterpret_cast<unsigned long long*>(counts.supers) + base + threadIdx.x;
    const bool inside = base + threadIdx.x < supers;
    std::uint64_t ahead = 0;
    std::uint64_t all = 0;
    Closing::Scan64(shared.scan64).ExclusiveSum(inside ? std::uint64_t{__ldcg(one)} : 0, ahead, all);
    if (inside) *one = running + ahead;
    running += all;
    __syncthreads();
  }
  if (threadIdx.x == 0) total(running);
}

// ---- ranks and masks

// The rank of the first item of a tile.
__device__ inline std::uint64_t rank_of(const Counts& counts, std::uint64_t tile) {
  return counts.supers[tile >> kSuperLog2] + counts.tiles[tile];
}

// How many items a tile has, once all are counted.
__device__ inline std::uint32_t items_of_tile(const Counts& counts, std::uint64_t tile, std::uint64_t tiles,
                                              const Status* status) {
  const std::uint64_t end = tile + 1 < tiles ? rank_of(counts, tile + 1) : status->items;
  return static_cast<std::uint32_t>(end - rank_of(counts, tile));
}

// The sum of a number of each lane below this one.
__device__ inline std::uint32_t lanes_before(std::uint32_t own) {
  const unsigned lane = threadIdx.x & 31;
  std::uint32_t sum = own;
#pragma unroll
  for (unsigned d = 1; d < 32; d <<= 1) {
    const std::uint32_t other = __shfl_up_sync(kAll, sum, d);
    if (lane >= d) sum += other;
  }
  return sum - own;
}

__device__ inline std::uint32_t bits_below(unsigned lane) { return (1u << lane) - 1; }

// Half as many bits: bit i of the result says whether bit 2i or 2i + 1 is set.
__device__ inline std::uint32_t fold_once(std::uint32_t word) {
  word = (word | word >> 1) & 0x55555555u;
  word = (word | word >> 1) & 0x33333333u;
  word = (word | word >> 2) & 0x0F0F0F0Fu;
  word = (word | word >> 4) & 0x00FF00FFu;
  return (word | word >> 8) & 0x0000FFFFu;
}

// Twice as many bits, each of the low 16 twice.
__device__ inline std::uint32_t unfold_once(std::uint32_t word) {
  word = (word | word << 8) & 0x00FF00FFu;
  word = (word | word << 4) & 0x0F0F0F0Fu;
  word = (word | word << 2) & 0x33333333u;
  word = (word | word << 1) & 0x55555555u;
  return word | word << 1;
}

// The mask word of 32 positions, of which `first` is the first (a multiple of 32): bit i says whether the item of
// position first + i is in the bitmap.
__device__ inline std::uint32_t mask_word(const Items& items, std::uint32_t grain_log2, std::uint64_t first) {
  const std::uint64_t bit = first >> grain_log2;
  const std::uint64_t half = bit >> 5;
  std::uint32_t word = half < items.count * 2 ? reinterpret_cast<const std::uint32_t*>(items.words)[half] : 0;
  if (grain_log2 == 0) return word;
  word >>= bit & 31;
  if (grain_log2 >= 5) return word & 1 ? kAll : 0;
  word &= (1u << (32u >> grain_log2)) - 1;
  for (std::uint32_t k = 0; k < grain_log2; ++k) word = unfold_once(word);
  return word;
}

// Of a mask word of 32 positions from `first` on, the positions at which items begin.
__device__ inline std::uint32_t item_starts(std::uint32_t word, std::uint32_t grain_log2, std::uint64_t first) {
  if (grain_log2 == 0) return word;
  if (grain_log2 >= 5) return (first & ((1u << grain_log2) - 1)) == 0 ? word & 1 : 0;
  std::uint32_t starts = 1;
  for (std::uint32_t step = 1u << grain_log2; step < 32; step *= 2) starts |= starts << step;
  return word & starts;
}

// 32 mask words, one with each lane.
struct ChunkMask {
  std::uint32_t word;    // of this lane
  std::uint32_t before;  // set positions in the words of lower lanes
  std::uint32_t total;   // in all words
};

__device__ inline ChunkMask count_mask(std::uint32_t word) {
  const std::uint32_t own = __popc(word);
  const std::uint32_t before = lanes_before(own);
  return {word, before, __shfl_sync(kAll, before + own, 31)};
}

__device__ inline ChunkMask load_chunk(const Items& items, std::uint32_t grain_log2, std::uint64_t first) {
  return count_mask(mask_word(items, grain_log2, first + (threadIdx.x & 31) * 32));
}

// The rank of the first set position of a chunk, in positions. All lanes call it.
__device__ inline std::uint64_t rank_of_chunk(const Items& items, std::uint32_t grain_log2, std::uint64_t chunk) {
  const std::uint64_t tile = chunk / kChunks;
  std::uint32_t before = 0;  // in the chunks of the tile before this one
  for (unsigned c = 0; c < chunk % kChunks; ++c) {
    before += __popc(mask_word(items, grain_log2, (tile << kTileLog2) + c * kChunk + (threadIdx.x & 31) * 32));
  }
  return (rank_of(items.counts, tile) << grain_log2) + __reduce_add_sync(kAll, before);
}

// Whether all positions of a chunk, or so many, are elements.
__device__ inline bool is_inside(const Geometry& g, std::uint64_t first, std::uint32_t positions = kChunk) {
  return first >= g.lead && first - g.lead + positions <= g.elements;
}

// The set positions of a tile, listed in shared memory as offsets from its first: with them a lane takes one position
// after another wherever they are, and none waits for one that has more of them. Walking the bits of mask words instead
// keeps 5 of 32 lanes busy at 1%.
//
// word_at(first) is the mask word of 32 positions; take(list, count, before) gets the positions in one list, or in one
// for each chunk where there are more than kListed: `before` is how many came earlier. All lanes call it.
inline constexpr std::uint32_t kListed = kChunk;

template <typename WordAt, typename Take>
__device__ void list_tile(std::uint64_t first, std::uint16_t* list, WordAt&& word_at, Take&& take) {
  const unsigned lane = threadIdx.x & 31;
  std::uint32_t word[kChunks];  // 128 positions that follow each other
  std::uint32_t own = 0;
#pragma unroll
  for (unsigned k = 0; k < kChunks; ++k) {
    word[k] = word_at(first + lane * 128 + k * 32);
    own += __popc(word[k]);
  }
  std::uint32_t before = lanes_before(own);
  const std::uint32_t total = __shfl_sync(kAll, before + own, 31);
  if (total == 0) return;
  if (total <= kListed) {
#pragma unroll
    for (unsigned k = 0; k < kChunks; ++k) {
      for (std::uint32_t bits = word[k]; bits != 0; bits &= bits - 1) {
        list[before++] = static_cast<std::uint16_t>(lane * 128 + k * 32 + __ffs(bits) - 1);
      }
    }
    __syncwarp();
    take(list, total, 0u);
    return;
  }
  std::uint32_t earlier = 0;
  for (unsigned c = 0; c < kChunks; ++c) {
    const ChunkMask mask = count_mask(word_at(first + c * kChunk + lane * 32));
    before = mask.before;
    for (std::uint32_t bits = mask.word; bits != 0; bits &= bits - 1) {
      list[before++] = static_cast<std::uint16_t>(c * kChunk + lane * 32 + __ffs(bits) - 1);
    }
    __syncwarp();
    take(list, mask.total, earlier);
    earlier += mask.total;
    __syncwarp();
  }
}

}  // namespace peel::cuda::detail
