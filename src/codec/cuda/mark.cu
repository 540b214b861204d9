// mark: which items of an array are not zero.
//
// Grid: a warp for each tile, chunk by chunk. It loads the 1,024 positions as 32 coalesced rows of 32, all of them
// before it looks at the first (streaming loads: they keep the cache for the last tiles, which pack() begins with); a
// ballot for each row makes a mask word, which stays with the lane of the row's number. Grains fold the mask words, the
// lanes of a warp put their bits together, and the words go out. Reading takes 0.132 ms of 2^27 float32 on an H200,
// where a copy takes 0.260.
#include "codec/cuda/element_bits.cuh"
#include "codec/cuda/follow.cuh"
#include "codec/cuda/tiles.cuh"

namespace peel::cuda::detail {

namespace {

constexpr unsigned kRows = kChunk / 32;
// Elements to keep are put together in shared memory first, so many rows at a time: a store for the few of each row
// took 9 us longer at 10% of 2^27 float32.
constexpr unsigned kRowsKept = kRows / 2;

// Stores the items of a chunk whose lanes hold a mask word each, and returns how many there are. Items of up to 32
// positions: a lane has 32 / grain bits, and `grain` lanes make a word.
__device__ std::uint32_t store_small(std::uint32_t mask, std::uint32_t grain_log2, std::uint64_t first,
                                     const Items& items) {
  for (std::uint32_t k = 0; k < grain_log2; ++k) mask = fold_once(mask);
  const unsigned lane = threadIdx.x & 31;
  const unsigned lanes = 1u << grain_log2;
  std::uint32_t word = mask << ((lane & (lanes - 1)) * (32 >> grain_log2));
  for (unsigned d = 1; d < lanes; d <<= 1) word |= __shfl_xor_sync(kAll, word, d);
  const std::uint64_t half = (first >> grain_log2 >> 5) + (lane >> grain_log2);
  const bool stores = (lane & (lanes - 1)) == 0;
  if (stores && half < items.count * 2) reinterpret_cast<std::uint32_t*>(items.words)[half] = word;
  return __reduce_add_sync(kAll, stores ? __popc(word) : 0);
}

// Items of 64 positions and more: a chunk has 16 bits or fewer.
__device__ std::uint32_t fold_large(std::uint32_t mask, std::uint32_t grain_log2) {
  std::uint32_t bits = __ballot_sync(kAll, mask != 0);
  for (std::uint32_t k = 5; k < grain_log2; ++k) bits = fold_once(bits);
  return bits;
}

// A tile has 64 to 4 of them, a part of a word, which lane 0 adds to it. Words are zero before.
__device__ void store_large(std::uint64_t bits, std::uint32_t grain_log2, std::uint64_t tile, const Items& items) {
  const std::uint64_t first = tile << kTileLog2 >> grain_log2;
  if (bits == 0 || first / 64 >= items.count) return;
  atomicOr(reinterpret_cast<unsigned long long*>(items.words) + first / 64, bits << (first % 64));
}

template <typename Bits, bool kChecked, bool kKeeps>
__global__ void __launch_bounds__(kThreads, sizeof(Bits) == 8 ? 2 : 4)
    mark_tiles(Geometry g, std::uint64_t tiles, Limits limits, const Bits* x, Stripes where, Items items,
               std::uint64_t* flag_word, Bits* kept, std::uint32_t kept_room, Status* status) {
  await_ahead();
  __shared__ Closing closing;
  __shared__ Bits gathered[kKeeps ? kWarps : 1][kRowsKept * 32];
  const std::uint64_t tile = own_tile();  // may be past the last one: all its positions are outside then
  const std::int64_t shift = where.shift(tile);
  const unsigned lane = threadIdx.x & 31;
  const auto magnitude = static_cast<Bits>(limits.mask);
  const auto zero = static_cast<Bits>(limits.zero);
  Bits largest = 0;
  std::uint32_t found = 0;
  std::uint64_t large = 0;
  Bits* const keep = kKeeps ? kept + tile * kept_room : nullptr;
  Bits* const together = gathered[kKeeps ? threadIdx.x >> 5 : 0];
#pragma unroll 1
  for (unsigned c = 0; c < kChunks; ++c) {
    const std::uint64_t first = (tile << kTileLog2) + c * kChunk;
    Bits value[kRows];
    if (is_inside(g, first)) {
      const Bits* row = x + (static_cast<std::int64_t>(first) + shift) + lane;
#pragma unroll
      for (unsigned i = 0; i < kRows; ++i) value[i] = load_once(row + i * 32);
    } else {
#pragma unroll
      for (unsigned i = 0; i < kRows; ++i) {
        const std::uint64_t at = first + i * 32 + lane;
        value[i] = at - g.lead < g.elements ? x[static_cast<std::int64_t>(at) + shift] : Bits{0};  // wraps before it
      }
    }
    std::uint32_t mask = 0;
    std::uint32_t at = found;
    std::uint32_t some = 0;
#pragma unroll
    for (unsigned i = 0; i < kRows; ++i) {
      const auto size = static_cast<Bits>(value[i] & magnitude);
      const std::uint32_t row = __ballot_sync(kAll, size > zero);
      if (lane == i) mask = row;
      if (kKeeps) {
        if (size > zero) together[some + __popc(row & bits_below(lane))] = value[i];
        some += __popc(row);
        if (i % kRowsKept == kRowsKept - 1) {
          __syncwarp();
          for (std::uint32_t k = lane; k < some && at + k < kept_room; k += 32) keep[at + k] = together[k];
          __syncwarp();
          at += some;
          some = 0;
        }
      }
      if (kChecked && size > largest) largest = size;
    }
    if (g.grain_log2 <= 5) {
      found += store_small(mask, g.grain_log2, first, items);
    } else {
      large |= std::uint64_t{fold_large(mask, g.grain_log2)} << (c * (kChunk >> g.grain_log2));
    }
  }
  if (g.grain_log2 > 5) {
    if (lane == 0) store_large(large, g.grain_log2, tile, items);
    found = __popcll(large);
  }
  if (lane == 0 && tile < tiles) items.counts.tiles[tile] = found;
  if (kChecked && largest > limits.fits) {
    atomicOr(&status->flags, largest > limits.finite ? kNotFinite | kOverflow : kOverflow);
    atomicOr(reinterpret_cast<unsigned long long*>(flag_word), kFlagOverflow);
  }
  close_tiles(items.counts, tiles, closing, [&](std::uint64_t all) { status->items = all; });
}

template <typename Bits>
void launch(const Geometry& g, const Limits& limits, const void* x, const Stripes& where, const Items& items,
            std::uint64_t* flag_word, const Kept& kept, Status* status, cudaStream_t stream) {
  const auto checked = kept.values == nullptr ? mark_tiles<Bits, true, false> : mark_tiles<Bits, true, true>;
  const auto unchecked = kept.values == nullptr ? mark_tiles<Bits, false, false> : mark_tiles<Bits, false, true>;
  const auto kernel = limits.checked ? checked : unchecked;
  follow(kernel, tile_blocks(g), kThreads, 0, stream, g, tiles_of(g), limits, static_cast<const Bits*>(x), where, items,
         flag_word, static_cast<Bits*>(kept.values), kept.room, status);
}

}  // namespace

cudaError_t mark(const Geometry& g, const Limits& limits, const void* x, const Stripes& where, const Items& items,
                 std::uint64_t* flag_word, const Kept& kept, Status* status, cudaStream_t stream) {
  if (tiles_of(g) == 0) return cudaSuccess;
  with_bits(g.type,
            [&](auto bits) { launch<decltype(bits)>(g, limits, x, where, items, flag_word, kept, status, stream); });
  return cudaGetLastError();
}

}  // namespace peel::cuda::detail
