// The sparse view: from sorted item numbers and their values to a bitmap with values in its order, and back.
//
// gather: an item whose lanes inside the array are all zero is left out, as the dense view would leave it out; so a
// first pass looks (a warp for each item), a scan tells where those that stay go, a second pass moves them.
//
// emit: item numbers and values of all items that were not lost, in order.
#include <cub/device/device_scan.cuh>

#include "codec/cuda/conversion.cuh"
#include "codec/cuda/element_bits.cuh"
#include "codec/cuda/tiles.cuh"

namespace peel::cuda::detail {

namespace {

using peel::detail::first_element;
using peel::detail::first_lane;
using peel::detail::last_element;

struct Lanes {
  std::uint32_t first;
  std::uint32_t last;
};
// Those of an item that lie inside the array.
__device__ Lanes lanes_inside(const Geometry& g, std::uint64_t item) {
  const std::uint32_t first = first_lane(g, item);
  return {first, first + static_cast<std::uint32_t>(last_element(g, item) - first_element(g, item))};
}

template <typename Bits>
__global__ void __launch_bounds__(kThreads)
    look(Geometry g, Limits limits, const std::uint64_t* items, std::uint64_t count, const Bits* values,
         std::uint64_t* stays, std::uint64_t* flag_word, Status* status) {
  const std::uint64_t i = std::uint64_t{blockIdx.x} * kWarps + (threadIdx.x >> 5);
  if (i >= count) return;
  const unsigned lane = threadIdx.x & 31;
  const std::uint64_t item = items[i];
  if (item >= g.items || (i != 0 && items[i - 1] >= item)) {
    if (lane == 0) {
      atomicOr(&status->flags, kBadItems);
      stays[i] = 0;
    }
    return;
  }
  const Lanes inside = lanes_inside(g, item);
  const auto mask = static_cast<Bits>(limits.mask);
  Bits largest = 0;
  for (std::uint32_t l = inside.first + lane; l < inside.last; l += 32) {
    const auto size = static_cast<Bits>(values[(i << g.grain_log2) + l] & mask);
    if (size > largest) largest = size;
  }
  const bool any = __any_sync(kAll, largest > static_cast<Bits>(limits.zero));
  if (lane == 0) stays[i] = any ? 1 : 0;
  if (limits.checked && largest > limits.fits) {
    atomicOr(&status->flags, largest > limits.finite ? kNotFinite | kOverflow : kOverflow);
    atomicOr(reinterpret_cast<unsigned long long*>(flag_word), kFlagOverflow);
  }
}

template <typename Bits>
__global__ void __launch_bounds__(kThreads)
    move(Geometry g, const std::uint64_t* items, std::uint64_t count, const Bits* values, const std::uint64_t* stays,
         const std::uint64_t* ranks, std::uint32_t* words, Bits* out, const Status* status) {
  const std::uint64_t i = std::uint64_t{blockIdx.x} * kWarps + (threadIdx.x >> 5);
  if (i >= count || (status->flags & kBadItems) != 0 || stays[i] == 0) return;
  const unsigned lane = threadIdx.x & 31;
  const std::uint64_t item = items[i];
  const Lanes inside = lanes_inside(g, item);
  for (std::uint32_t l = lane; l < g.grain; l += 32) {
    const Bits value = l >= inside.first && l < inside.last ? values[(i << g.grain_log2) + l] : Bits{0};
    out[(ranks[i] << g.grain_log2) + l] = value;
  }
  if (lane == 0) atomicOr(words + (item >> 5), 1u << (item & 31));
}

// A warp's positions of `all`, tile by tile; those of them in `kept` go out at their rank among the kept.
template <typename Bits, typename In>
__global__ void __launch_bounds__(kThreads)
    emit_tiles(Geometry g, std::uint64_t tiles, Conversion how, Items all, Items kept, const In* values,
               std::uint64_t values_room, std::uint64_t* items, Bits* out, std::uint64_t room, Status* status) {
  const std::uint64_t tile = own_tile();
  if (tile >= tiles) return;
  const unsigned lane = threadIdx.x & 31;
  std::uint64_t from = rank_of(all.counts, tile) << g.grain_log2;
  std::uint64_t to = rank_of(kept.counts, tile) << g.grain_log2;
  const bool refused = (status->flags & (kOverflow | kCorrupt | kNoRoom)) != 0;
  const std::uint64_t end = room << g.grain_log2;
  const std::uint32_t below = bits_below(lane);
  for (unsigned c = 0; c < kChunks; ++c) {
    const std::uint64_t first = (tile << kTileLog2) + c * kChunk;
    const ChunkMask of_all = load_chunk(all, g.grain_log2, first);
    const ChunkMask of_kept = load_chunk(kept, g.grain_log2, first);
    for (unsigned i = 0; i < 32 && !refused; ++i) {
      const std::uint32_t all_row = __shfl_sync(kAll, of_all.word, i);
      const std::uint32_t kept_row = __shfl_sync(kAll, of_kept.word, i);
      const std::uint64_t target = to + __shfl_sync(kAll, of_kept.before, i) + __popc(kept_row & below);
      const std::uint64_t source = from + __shfl_sync(kAll, of_all.before, i) + __popc(all_row & below);
      if ((kept_row >> lane & 1) == 0 || target >= end || source >= values_room) continue;
      out[target] = element_of<Bits>(values[source], how);
      const std::uint64_t position = first + i * 32 + lane;
      if ((position & (g.grain - 1)) == 0) items[target >> g.grain_log2] = position >> g.grain_log2;
    }
    from += of_all.total;
    to += of_kept.total;
  }
  if (tile + 1 == tiles && lane == 0 && to > end) atomicOr(&status->flags, kNoRoom);
}

}  // namespace

std::size_t sparse_scan_bytes(std::uint64_t count) {
  std::size_t bytes = 0;
  const std::uint64_t* none = nullptr;
  (void)cub::DeviceScan::ExclusiveSum(nullptr, bytes, none, static_cast<std::uint64_t*>(nullptr),
                                      static_cast<std::int64_t>(count));
  return bytes;
}

cudaError_t gather_sparse(const Geometry& g, const Limits& limits, const std::uint64_t* items, std::uint64_t count,
                          const void* values, const SparseScratch& scratch, const Items& own, std::uint64_t* flag_word,
                          Status* status, cudaStream_t stream) {
  cudaError_t code = cudaMemsetAsync(own.words, 0, own.count * sizeof(std::uint64_t), stream);
  if (code != cudaSuccess || count == 0) return code;
  const auto blocks = static_cast<unsigned>((count + kWarps - 1) / kWarps);  // the caller allows fewer than 2^34
  with_bits(g.type, [&](auto b) {
    using Bits = decltype(b);
    const auto* lanes = static_cast<const Bits*>(values);
    look<Bits><<<blocks, kThreads, 0, stream>>>(g, limits, items, count, lanes, scratch.stays, flag_word, status);
    std::size_t bytes = scratch.scan_bytes;
    code = cub::DeviceScan::ExclusiveSum(scratch.scan, bytes, scratch.stays, scratch.ranks,
                                         static_cast<std::int64_t>(count), stream);
    if (code != cudaSuccess) return;
    move<Bits><<<blocks, kThreads, 0, stream>>>(g, items, count, lanes, scratch.stays, scratch.ranks,
                                                reinterpret_cast<std::uint32_t*>(own.words),
                                                static_cast<Bits*>(scratch.values), status);
    code = cudaGetLastError();
  });
  return code;
}

cudaError_t emit_sparse(const Geometry& g, const Conversion& how, const Items& all, const Items& kept,
                        const void* values, std::uint64_t values_room, std::uint64_t* items, void* out,
                        std::uint64_t room, Status* status, cudaStream_t stream) {
  if (tiles_of(g) == 0) return cudaSuccess;
  const std::uint64_t tiles = tiles_of(g);
  with_bits(g.type, [&](auto b) {
    using Bits = decltype(b);
    auto* elements = static_cast<Bits*>(out);
    if (how.cells == CellType::native) {
      emit_tiles<<<tile_blocks(g), kThreads, 0, stream>>>(g, tiles, how, all, kept, static_cast<const Bits*>(values),
                                                          values_room, items, elements, room, status);
    } else if (how.cells == CellType::fixed64) {
      emit_tiles<<<tile_blocks(g), kThreads, 0, stream>>>(g, tiles, how, all, kept,
                                                          static_cast<const std::uint64_t*>(values), values_room, items,
                                                          elements, room, status);
    } else {
      emit_tiles<<<tile_blocks(g), kThreads, 0, stream>>>(g, tiles, how, all, kept,
                                                          static_cast<const std::uint32_t*>(values), values_room, items,
                                                          elements, room, status);
    }
  });
  return cudaGetLastError();
}

}  // namespace peel::cuda::detail
