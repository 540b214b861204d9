// pack: the values of the items of a bitmap, one after another, as elements or cells.
//
// Grid: a warp for each tile. Its set positions are listed in shared memory (list_tile); lane l then takes the
// positions l, l + 32 ..., four at a time: loads that follow each other in the array, stores that are coalesced.
#include <type_traits>

#include "codec/cuda/conversion.cuh"
#include "codec/cuda/element_bits.cuh"
#include "codec/cuda/tiles.cuh"

namespace peel::cuda::detail {

namespace {

constexpr unsigned kAhead = 4;

template <typename Bits>
struct TypedSource {
  const Bits* x;
  Stripes where;
  const Bits* values;
  const Bits* kept;
};

template <typename Out, typename Bits>
__device__ Out convert(Bits bits, const Conversion& how) {
  if constexpr (std::is_same_v<Out, Bits>) {
    if (how.cells == CellType::native) return bits;
  }
  if constexpr (sizeof(Out) >= 4) {
    return to_cell<Out>(bits, how);
  } else {
    return bits;
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

template <typename Bits, typename Out, bool kSame>
__global__ void __launch_bounds__(kThreads)
    pack_tiles(Geometry g, std::uint64_t tiles, Conversion how, TypedSource<Bits> from, Items own, Items all,
               Out* __restrict__ out, std::uint64_t room, Status* status) {
  __shared__ std::uint16_t lists[kWarps][kListed];
  __shared__ OwnMask own_masks[kSame ? 1 : kWarps];
  const std::uint64_t tile = own_tile();
  if (tile >= tiles) return;
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

  if (kSame && from.kept != nullptr) {
    const std::uint32_t count = items_of_tile(all.counts, tile, tiles, status);
    if (count <= kKept) {
      const Bits* kept = from.kept + tile * kKept;
      const std::uint64_t left = rank < room ? room - rank : 0;
#pragma unroll 4
      for (std::uint32_t i = lane; i < count; i += 32) {
        if (i < left) out[rank + i] = convert<Out>(kept[i], how);
      }
      return;
    }
  }
  const std::int64_t shift = from.where.shift(tile);
  const auto element_at = [&](std::uint32_t i, std::uint32_t offset) -> Bits {
    const std::uint64_t at = first + offset;
    if (at - g.lead >= g.elements || (!kSame && !mine.has(offset))) return 0;
    if (from.values == nullptr) return from.x[static_cast<std::int64_t>(at) + shift];
    return from.values[own_rank + (kSame ? i : mine.rank(offset))];
  };
  list_tile(
      first, lists[threadIdx.x >> 5], [&](std::uint64_t at) { return mask_word(all, g.grain_log2, at); },
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
            if (i < count && i < left) to[i] = convert<Out>(value[k], how);
          }
        }
      });
}

template <typename Bits, typename Out>
void launch(const Geometry& g, const Conversion& how, const TypedSource<Bits>& from, const Items& own, const Items& all,
            void* payload, std::uint64_t room, Status* status, cudaStream_t stream) {
  const auto kernel = own.words == all.words ? pack_tiles<Bits, Out, true> : pack_tiles<Bits, Out, false>;
  kernel<<<tile_blocks(g), kThreads, 0, stream>>>(g, tiles_of(g), how, from, own, all, static_cast<Out*>(payload), room,
                                                  status);
}

}  // namespace

cudaError_t pack(const Geometry& g, const Conversion& how, const Source& source, const Items& own, const Items& all,
                 void* payload, std::uint64_t room, Status* status, cudaStream_t stream) {
  if (tiles_of(g) == 0) return cudaSuccess;
  with_bits(g.type, [&](auto b) {
    using Bits = decltype(b);
    const TypedSource<Bits> from{static_cast<const Bits*>(source.x), source.where,
                                 static_cast<const Bits*>(source.values), static_cast<const Bits*>(source.kept)};
    if (how.cells == CellType::native) {
      launch<Bits, Bits>(g, how, from, own, all, payload, room, status, stream);
    } else if (how.cells == CellType::fixed64) {
      launch<Bits, std::uint64_t>(g, how, from, own, all, payload, room, status, stream);
    } else {
      launch<Bits, std::uint32_t>(g, how, from, own, all, payload, room, status, stream);
    }
  });
  return cudaGetLastError();
}

}  // namespace peel::cuda::detail
