// Grid: a warp for each chunk, as expand has it. A lane holds the sums of 32 elements, four that follow each other of
// every 128, in registers while it goes through the sources: each of them is read once, and x is written once.
#include "allreduce/cuda/add_sources.h"

#include <bit>

#include "allreduce/cuda/float_types.h"
#include "codec/cuda/element_bits.cuh"
#include "codec/cuda/tiles.cuh"
#include "plan/rank_sum.h"

namespace peel::cuda::detail {

namespace {

using peel::detail::accumulate;
using peel::detail::RankSum;
using peel::detail::rounded;

constexpr unsigned kRows = kChunk / 128;

template <typename T, typename Bits>
__device__ void add_quads(const ChunkMask& mask, const Bits* values, std::uint32_t left, RankSum<T> (&sums)[kRows][4]) {
  const unsigned lane = threadIdx.x & 31;
  const unsigned shift = (lane & 7) * 4;
#pragma unroll
  for (unsigned i = 0; i < kRows; ++i) {
    const unsigned owner = i * 4 + (lane >> 3);
    const std::uint32_t word = __shfl_sync(kAll, mask.word, owner);
    std::uint32_t at = __shfl_sync(kAll, mask.before, owner) + __popc(word & bits_below(shift));
    const std::uint32_t four = word >> shift & 15;
    if (four == 0) continue;
#pragma unroll
    for (unsigned e = 0; e < 4; ++e) {
      if ((four >> e & 1) == 0) continue;
      if (at < left) accumulate(sums[i][e], std::bit_cast<T>(values[at]));
      ++at;
    }
  }
}

// By one thread; the other blocks read what was there before.
__device__ void add_up_pieces(const AddedItems* sources, unsigned count) {
  for (unsigned s = 0; s < count; ++s) {
    sources[s].after->items = sources[s].before->items + sources[s].status->items;
    sources[s].after->flags = sources[s].before->flags | sources[s].status->flags;
  }
}

// Of integers T is the unsigned one: the width is all that matters.
template <typename T, typename Bits>
__global__ void __launch_bounds__(kThreads)
    add_chunks(Geometry g, std::uint64_t tiles, const AddedItems* __restrict__ sources, unsigned count,
               Bits* __restrict__ x, Stripes where, Status* status) {
  const unsigned lane = threadIdx.x & 31;
  const std::uint64_t chunk = own_tile();  // chunks are what warps count here
  const std::uint64_t tile = chunk / kChunks;
  const std::uint64_t first = chunk * kChunk;
  bool damaged = false;
  for (unsigned s = 0; s < count; ++s) damaged |= (sources[s].status->flags | sources[s].before->flags) != 0;
  if (blockIdx.x == 0 && threadIdx.x == 0) add_up_pieces(sources, count);
  if (damaged) return;  // all threads alike
  std::uint32_t any = 0;
  if (tile < tiles) {
    RankSum<T> sums[kRows][4] = {};
    for (unsigned s = 0; s < count; ++s) {
      const AddedItems& source = sources[s];
      const ChunkMask mask = load_chunk(source.items, g.grain_log2, first);
      any |= mask.word;
      if (mask.total == 0) continue;
      const std::uint64_t rank =
          rank_of_chunk(source.items, g.grain_log2, chunk) + (source.before->items << g.grain_log2);
      const std::uint64_t room = rank < source.room ? source.room - rank : 0;
      add_quads<T>(mask, static_cast<const Bits*>(source.values) + rank,
                   static_cast<std::uint32_t>(room < kChunk ? room : kChunk), sums);
    }
    Bits* to = x + (static_cast<std::int64_t>(first) + where.shift(tile));
    const bool quads = is_inside(g, first) && takes_quads(to);
#pragma unroll
    for (unsigned i = 0; i < kRows; ++i) {
      Bits out[4];
#pragma unroll
      for (unsigned e = 0; e < 4; ++e) out[e] = std::bit_cast<Bits>(rounded<T>(sums[i][e]));
      const unsigned at = i * 128 + lane * 4;
      if (quads) {
        store_quad(to + at, out);
        continue;
      }
#pragma unroll
      for (unsigned e = 0; e < 4; ++e) {
        if (first + at + e - g.lead < g.elements) to[at + e] = out[e];
      }
    }
  }
  // How many items the union has: a number for each warp, and one addition for the block.
  __shared__ std::uint32_t found[kWarps];
  const std::uint32_t own = __reduce_add_sync(kAll, __popc(item_starts(any, g.grain_log2, first + lane * 32)));
  if (lane == 0) found[threadIdx.x >> 5] = own;
  __syncthreads();
  if (threadIdx.x != 0) return;
  std::uint32_t all = 0;
  for (const std::uint32_t one : found) all += one;
  if (all != 0) atomicAdd(reinterpret_cast<unsigned long long*>(&status->items), static_cast<unsigned long long>(all));
  if (blockIdx.x != 0) return;
  for (unsigned s = 0; s < count; ++s) status->recovered += sources[s].status->items;
}

template <typename T, typename Bits>
void launch(const Geometry& g, const AddedItems* sources, unsigned count, void* x, const Stripes& where, Status* status,
            cudaStream_t stream) {
  add_chunks<T, Bits><<<tile_blocks(g) * kChunks, kThreads, 0, stream>>>(g, tiles_of(g), sources, count,
                                                                         static_cast<Bits*>(x), where, status);
}

}  // namespace

cudaError_t add_sources(const Geometry& g, const AddedItems* sources, unsigned count, void* x, const Stripes& where,
                        Status* status, cudaStream_t stream) {
  if (tiles_of(g) == 0) return cudaSuccess;
  const bool is_float = with_float(g.type, [&](auto of) {
    using Of = decltype(of);
    launch<typename Of::Element, typename Of::Bits>(g, sources, count, x, where, status, stream);
  });
  if (!is_float) {
    with_bits(g.type,
              [&](auto bits) { launch<decltype(bits), decltype(bits)>(g, sources, count, x, where, status, stream); });
  }
  return cudaGetLastError();
}

}  // namespace peel::cuda::detail
