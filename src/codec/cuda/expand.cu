// expand: an array out of the items of a bitmap and their values in order. Every element is written once.
//
// Grid: a warp for each chunk. A lane writes four elements that follow each other with one store where the array allows
// it (quads), else one (rows): at one element a lane, instructions and not memory were the limit (0.18 instead of 0.15
// ms of 2^27 float32 on an H200). A damaged or overflown message is not expanded: x stays as it was.

#include "codec/cuda/conversion.cuh"
#include "codec/cuda/element_bits.cuh"
#include "codec/cuda/follow.cuh"
#include "codec/cuda/tiles.cuh"

namespace peel::cuda::detail {

namespace {

// Values of a packed message are elements, and are moved, or cells.
template <bool kNative, typename Bits, typename In>
__device__ Bits element_from(In in, const Conversion& how) {
  if constexpr (kNative) {
    return in;
  } else {
    return element_of<Bits>(in, how);
  }
}

// Lane l has positions 4 l to 4 l + 3 of every 128. All values are there.
template <bool kNative, typename Bits, typename In>
__device__ void expand_quads(const ChunkMask& mask, const Conversion& how, const In* __restrict__ values, Bits* to) {
  const unsigned lane = threadIdx.x & 31;
  const unsigned shift = (lane & 7) * 4;
  const std::uint32_t below = bits_below(shift);
#pragma unroll
  for (unsigned i = 0; i < 8; ++i) {
    const unsigned owner = i * 4 + (lane >> 3);
    const std::uint32_t word = __shfl_sync(kAll, mask.word, owner);
    const std::uint32_t before = __shfl_sync(kAll, mask.before, owner) + __popc(word & below);
    const std::uint32_t four = word >> shift;
    const In* from = values + before;
    Bits out[4];
#pragma unroll
    for (unsigned e = 0; e < 4; ++e) {
      const bool set = (four >> e & 1) != 0;
      out[e] = set ? element_from<kNative, Bits>(*from, how) : Bits{0};
      if (set) ++from;
    }
    store_quad(to + i * 128 + lane * 4, out);
  }
}

template <bool kNative, typename Bits, typename In>
__device__ void expand_rows(const Geometry& g, std::uint64_t first, const ChunkMask& mask, const Conversion& how,
                            const In* values, std::uint32_t left, Bits* to) {
  const unsigned lane = threadIdx.x & 31;
#pragma unroll 4
  for (unsigned i = 0; i < 32; ++i) {
    const std::uint32_t row = __shfl_sync(kAll, mask.word, i);
    const std::uint32_t from = __shfl_sync(kAll, mask.before, i) + __popc(row & bits_below(lane));
    Bits value = 0;
    if (row >> lane & 1) value = element_from<kNative, Bits>(from < left ? values[from] : In{0}, how);
    if (first + i * 32 + lane - g.lead < g.elements) store_once(to + i * 32 + lane, value);
  }
}

template <typename Bits, typename In, bool kNative>
__global__ void __launch_bounds__(kThreads)
    expand_chunks(Geometry g, std::uint64_t tiles, Conversion how, Items all, const In* in, std::uint64_t room, Bits* x,
                  Stripes where, const Status* status) {
  await_ahead();
  const std::uint64_t chunk = own_tile();  // chunks are what warps count here
  const std::uint64_t tile = chunk / kChunks;
  if (tile >= tiles || (status->flags & (kOverflow | kCorrupt | kNoRoom)) != 0) return;
  const std::uint64_t first = chunk * kChunk;
  const ChunkMask mask = load_chunk(all, g.grain_log2, first);
  const std::uint64_t rank = rank_of_chunk(all, g.grain_log2, chunk);
  const auto left = static_cast<std::uint32_t>(rank >= room ? 0 : room - rank < kChunk ? room - rank : kChunk);
  Bits* to = x + (static_cast<std::int64_t>(first) + where.shift(tile));
  if (is_inside(g, first) && takes_quads(to) && mask.total <= left) {
    expand_quads<kNative>(mask, how, in + rank, to);
  } else {
    expand_rows<kNative>(g, first, mask, how, in + rank, left, to);
  }
}

template <typename Bits, typename In, bool kNative = false>
void launch(const Geometry& g, const Conversion& how, const Items& all, const void* payload, std::uint64_t room,
            void* x, const Stripes& where, Status* status, cudaStream_t stream) {
  follow(expand_chunks<Bits, In, kNative>, tile_blocks(g) * kChunks, kThreads, 0, stream, g, tiles_of(g), how, all,
         static_cast<const In*>(payload), room, static_cast<Bits*>(x), where, status);
}

}  // namespace

cudaError_t expand(const Geometry& g, const Conversion& how, const Items& all, const void* payload, std::uint64_t room,
                   void* x, const Stripes& where, Status* status, cudaStream_t stream) {
  if (tiles_of(g) == 0) return cudaSuccess;
  with_bits(g.type, [&](auto b) {
    using Bits = decltype(b);
    if (how.cells == CellType::native) {
      launch<Bits, Bits, true>(g, how, all, payload, room, x, where, status, stream);
    } else if (how.cells == CellType::fixed64) {
      launch<Bits, std::uint64_t>(g, how, all, payload, room, x, where, status, stream);
    } else {
      launch<Bits, std::uint32_t>(g, how, all, payload, room, x, where, status, stream);
    }
  });
  return cudaGetLastError();
}

}  // namespace peel::cuda::detail
