// pack: the values of the items of a bitmap, one after another, as elements or cells.
//
// Grid: a warp for each tile, from the last to the first: what mark() read last is in the cache still (2 us of 2^27
// float32 at 10%, H200). Its set positions are listed in shared memory (list_tile); lane l then takes the positions l,
// l + 32 ..., four at a time: loads that follow each other in the array, stores that are coalesced. Where many
// positions are set, all elements are loaded as they lie instead, and put together in shared memory (pack_all).
#include <type_traits>

#include "codec/cuda/conversion.cuh"
#include "codec/cuda/element_bits.cuh"
#include "codec/cuda/follow.cuh"
#include "codec/cuda/tiles.cuh"

namespace peel::cuda::detail {

namespace {

constexpr unsigned kAhead = 4;
constexpr unsigned kKeptAhead = 8;

template <typename Bits>
struct TypedSource {
  const Bits* x;
  Stripes where;
  const Bits* values;
  const Bits* kept;
  std::uint32_t kept_room;
};

template <bool kNative, typename Out, typename Bits>
__device__ Out convert(Bits bits, const Conversion& how) {
  if constexpr (kNative) {
    return bits;
  } else {
    return to_cell<Out>(bits, how);
  }
}

// The own items, where they are not all that are set: mask words of the tile, and how many positions are before each.
struct OwnMask {
  std::uint32_t word[kTile / 32];
  std::uint32_t before[kTile / 32];

  // All lanes of the warp call it. Whether all own items are among those of `all`.
  __device__ bool load(const Items& own, const Items& all, std::uint32_t grain_log2, std::uint64_t first) {
    const unsigned lane = threadIdx.x & 31;
    std::uint32_t earlier = 0;
    bool contained = true;
    for (unsigned c = 0; c < kChunks; ++c) {
      const std::uint64_t here = first + c * kChunk;
      const ChunkMask mask = load_chunk(own, grain_log2, here);
      contained &= (mask.word & ~mask_word(all, grain_log2, here + lane * 32)) == 0;
      word[c * 32 + lane] = mask.word;
      before[c * 32 + lane] = earlier + mask.before;
      earlier += mask.total;
    }
    __syncwarp();
    return contained;
  }
  __device__ bool has(std::uint32_t offset) const { return word[offset >> 5] >> (offset & 31) & 1; }
  __device__ std::uint32_t rank(std::uint32_t offset) const {
    return before[offset >> 5] + __popc(word[offset >> 5] & bits_below(offset & 31));
  }
};

// What a warp puts together: half a chunk, where it belongs among 16 bytes.
constexpr unsigned kHalf = kChunk / 2;
template <typename Out>
constexpr unsigned kVector = 16 / sizeof(Out);
template <typename Out>
struct alignas(16) Staged {
  Out value[kHalf + kVector<Out>];

  // Writes `count` values, which begin at `skip`, to where they belong: `to` is aligned, for the one at 0.
  __device__ void store(Out* to, std::uint32_t skip, std::uint32_t count) const {
    const std::uint32_t end = skip + count;
    for (std::uint32_t i = (threadIdx.x & 31) * kVector<Out>; i < end; i += 32 * kVector<Out>) {
      if (i >= skip && i + kVector<Out> <= end) {
        *reinterpret_cast<uint4*>(to + i) = *reinterpret_cast<const uint4*>(value + i);
        continue;
      }
      for (std::uint32_t k = i < skip ? skip : i; k < end && k < i + kVector<Out>; ++k) to[k] = value[k];
    }
  }
};

constexpr unsigned kQuads = kHalf / 128;  // of a lane in half a chunk
template <typename Bits>
__device__ void load_half(const Bits* from, Bits (&value)[kQuads][4]) {
#pragma unroll
  for (unsigned i = 0; i < kQuads; ++i) load_quad(from + i * 128, value[i]);
}

// A tile of native elements that all exist, from `x` on; its values go to `out`. Those that are not own are zero.
template <bool kSame, typename Bits>
__device__ void pack_all(const Items& all, const OwnMask& mine, std::uint32_t grain_log2, std::uint64_t first,
                         const Bits* x, Bits* out, Staged<Bits>& staged) {
  const unsigned lane = threadIdx.x & 31;
  const unsigned shift = (lane & 7) * 4;
  const std::uint32_t below = bits_below(shift);
  std::uint32_t words[kChunks];
#pragma unroll
  for (unsigned c = 0; c < kChunks; ++c) words[c] = mask_word(all, grain_log2, first + c * kChunk + lane * 32);
  Bits value[2][kQuads][4];  // of this half, and of the next one, which is on its way
  load_half(x + lane * 4, value[0]);
#pragma unroll
  for (unsigned c = 0; c < kChunks; ++c) {
    const ChunkMask mask = count_mask(words[c]);
    const std::uint32_t middle = __shfl_sync(kAll, mask.before, 16);
#pragma unroll
    for (unsigned half = 0; half < 2; ++half) {
      if (c * 2 + half + 1 < kChunks * 2) load_half(x + (c * 2 + half + 1) * kHalf + lane * 4, value[1 - half]);
      const std::uint32_t earlier = half == 0 ? 0 : middle;
      const std::uint32_t count = half == 0 ? middle : mask.total - middle;
      const auto skip = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(out) % 16 / sizeof(Bits));
#pragma unroll
      for (unsigned i = 0; i < kQuads; ++i) {
        const unsigned owner = half * 16 + i * 4 + (lane >> 3);
        const std::uint32_t word = __shfl_sync(kAll, mask.word, owner);
        const std::uint32_t before = __shfl_sync(kAll, mask.before, owner) + __popc(word & below);
        const std::uint32_t four = word >> shift;
        const std::uint32_t own = kSame ? four : mine.word[c * 32 + owner] >> shift;
        Bits* to = staged.value + skip + before - earlier;
#pragma unroll
        for (unsigned e = 0; e < 4; ++e) {
          if ((four >> e & 1) == 0) continue;
          *to++ = kSame || (own >> e & 1) != 0 ? value[half][i][e] : Bits{0};
        }
      }
      __syncwarp();
      staged.store(out - skip, skip, count);
      out += count;
      __syncwarp();
    }
  }
}

// Positions of a tile from which on it is packed as a whole. At 70% of 2^27 float32 encoding took 396 us so on an H200,
// and 437 by lists; at 50% 361 and 382; at 20% 310 and 309.
constexpr std::uint32_t kMany = kTile / 8;

template <typename Bits, typename Out, bool kNative, bool kSame>
__global__ void __launch_bounds__(kThreads)
    pack_tiles(Geometry g, std::uint64_t tiles, Conversion how, TypedSource<Bits> from, Items own, Items all, Out* out,
               std::uint64_t room, Status* status) {
  await_ahead();
  constexpr bool kPacksAll = kNative && sizeof(Bits) <= 4;
  union Memory {
    std::uint16_t list[kListed];
    Staged<std::conditional_t<kPacksAll, Out, std::uint8_t>> staged;
  };
  __shared__ Memory memory[kWarps];
  __shared__ OwnMask own_masks[kSame ? 1 : kWarps];
  if (own_tile() >= tiles) return;
  const std::uint64_t tile = tiles - 1 - own_tile();
  const unsigned lane = threadIdx.x & 31;
  OwnMask& mine = own_masks[kSame ? 0 : threadIdx.x >> 5];
  const std::uint64_t first = tile << kTileLog2;
  const std::uint64_t rank = rank_of(all.counts, tile) << g.grain_log2;
  std::uint64_t own_rank = rank;
  if constexpr (!kSame) {
    if (from.values != nullptr) own_rank = rank_of(own.counts, tile) << g.grain_log2;
    if (!mine.load(own, all, g.grain_log2, first)) atomicOr(&status->flags, kLacksItems);
  }
  if (tile == 0 && lane == 0 && status->items << g.grain_log2 > room) atomicOr(&status->flags, kNoRoom);

  const std::int64_t shift = from.where.shift(tile);
  const std::uint32_t count = items_of_tile(all.counts, tile, tiles, status);
  if (kSame && from.kept != nullptr && count <= from.kept_room) {
    const Bits* kept = from.kept + tile * from.kept_room;
    const std::uint64_t left = rank < room ? room - rank : 0;
    const auto taken = static_cast<std::uint32_t>(left < count ? left : count);
    for (std::uint32_t base = lane; base < taken; base += 32 * kKeptAhead) {
      Bits value[kKeptAhead];
#pragma unroll
      for (unsigned k = 0; k < kKeptAhead; ++k) {
        if (base + k * 32 < taken) value[k] = kept[base + k * 32];
      }
#pragma unroll
      for (unsigned k = 0; k < kKeptAhead; ++k) {
        if (base + k * 32 < taken) out[rank + base + k * 32] = convert<kNative, Out>(value[k], how);
      }
    }
    return;
  }
  if constexpr (kPacksAll) {
    const std::uint64_t positions = std::uint64_t{count} << g.grain_log2;
    const Bits* x = from.x + (static_cast<std::int64_t>(first) + shift);
    if (from.values == nullptr && positions >= kMany && rank + positions <= room && is_inside(g, first, kTile) &&
        takes_quads(x)) {
      pack_all<kSame>(all, mine, g.grain_log2, first, x, out + rank, memory[threadIdx.x >> 5].staged);
      return;
    }
  }
  const auto element_at = [&](std::uint32_t i, std::uint32_t offset) -> Bits {
    const std::uint64_t at = first + offset;
    if (at - g.lead >= g.elements || (!kSame && !mine.has(offset))) return 0;
    if (from.values == nullptr) return from.x[static_cast<std::int64_t>(at) + shift];
    return from.values[own_rank + (kSame ? i : mine.rank(offset))];
  };
  list_tile(
      first, memory[threadIdx.x >> 5].list, [&](std::uint64_t at) { return mask_word(all, g.grain_log2, at); },
      [&](const std::uint16_t* list, std::uint32_t count, std::uint32_t before) {
        Out* to = out + rank + before;
        const std::uint64_t left = rank + before < room ? room - rank - before : 0;
        for (std::uint32_t base = lane; base < count; base += 32 * kAhead) {
          Bits value[kAhead];
#pragma unroll
          for (unsigned k = 0; k < kAhead; ++k) {
            const std::uint32_t i = base + k * 32;
            if (i < count) value[k] = element_at(before + i, list[i]);
          }
#pragma unroll
          for (unsigned k = 0; k < kAhead; ++k) {
            const std::uint32_t i = base + k * 32;
            if (i < count && i < left) to[i] = convert<kNative, Out>(value[k], how);
          }
        }
      });
}

template <typename Bits, typename Out, bool kNative = false>
void launch(const Geometry& g, const Conversion& how, const TypedSource<Bits>& from, const Items& own, const Items& all,
            void* payload, std::uint64_t room, Status* status, cudaStream_t stream) {
  const auto kernel =
      own.words == all.words ? pack_tiles<Bits, Out, kNative, true> : pack_tiles<Bits, Out, kNative, false>;
  follow(kernel, tile_blocks(g), kThreads, 0, stream, g, tiles_of(g), how, from, own, all, static_cast<Out*>(payload),
         room, status);
}

}  // namespace

cudaError_t pack(const Geometry& g, const Conversion& how, const Source& source, const Items& own, const Items& all,
                 void* payload, std::uint64_t room, Status* status, cudaStream_t stream) {
  if (tiles_of(g) == 0) return cudaSuccess;
  with_bits(g.type, [&](auto b) {
    using Bits = decltype(b);
    const TypedSource<Bits> from{static_cast<const Bits*>(source.x), source.where,
                                 static_cast<const Bits*>(source.values), static_cast<const Bits*>(source.kept.values),
                                 source.kept.room};
    if (how.cells == CellType::native) {
      launch<Bits, Bits, true>(g, how, from, own, all, payload, room, status, stream);
    } else if (how.cells == CellType::fixed64) {
      launch<Bits, std::uint64_t>(g, how, from, own, all, payload, room, status, stream);
    } else {
      launch<Bits, std::uint32_t>(g, how, from, own, all, payload, room, status, stream);
    }
  });
  return cudaGetLastError();
}

}  // namespace peel::cuda::detail
