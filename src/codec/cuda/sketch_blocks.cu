// sketch_blocks: large sketches of single elements with fixed32 cells, block by block: the cells of a block live in the
// shared memory of one thread block, which goes through the block's own items. No addition leaves the chip, and cells
// are written once.
//
// A warp lists the items of 1,024 local ids at a time, or of half of them where they are many, and then takes them lane
// by lane, four loads under way at once. Elements of one group are neighbours on the list, so that a load instruction
// fetches their sector once; fetched by the lane that has the group, one after another, they came out of the L2 cache
// every time and took four times as long at 70%. Encoding 2^27 float32 at 30% took 485 us so on an H200, 512 with
// halves always, and 528 with quarters.
#include "codec/cuda/conversion.cuh"
#include "codec/cuda/device_limits.h"
#include "codec/cuda/element_bits.cuh"
#include "codec/cuda/follow.cuh"
#include "codec/cuda/own_groups.cuh"

namespace peel::cuda::detail {

namespace {

using peel::detail::Cells;
using peel::detail::kSubtables;

constexpr int kBlockThreads = 512;
constexpr unsigned kListItems = 512;  // 1,024 would leave room for two thread blocks instead of three
constexpr unsigned kAhead = 4;

template <typename Bits>
__global__ void __launch_bounds__(kBlockThreads, 3)
    sketch_own(Geometry g, Conversion how, const Bits* x, const std::uint8_t* turned, std::uint32_t* payload) {
  await_ahead();
  extern __shared__ std::uint32_t cells[];
  __shared__ std::uint16_t lists[kBlockThreads / 32][kListItems];
  const OwnGroups own(g, turned, blockIdx.x);
  const FullCellMap map(g, own.block);
  const unsigned lane = threadIdx.x & 31;
  std::uint16_t* list = lists[threadIdx.x >> 5];
  const std::uint32_t count = kSubtables * g.subtable;
  for (std::uint32_t c = threadIdx.x; c < count; c += kBlockThreads) cells[c] = 0;
  __syncthreads();

  const auto add = [&](std::uint32_t local, Bits bits) {
    const Cells at = map.at(local);
    const std::uint32_t cell = to_cell<std::uint32_t>(bits, how);
#pragma unroll
    for (unsigned j = 0; j < kSubtables; ++j) {
      atomicAdd(cells + j * g.subtable + at.cell[j], peel::detail::with_sign(cell, at.signs, j));
    }
  };
  for (std::uint32_t base = threadIdx.x - lane; base < own.fours; base += kBlockThreads) {
    const std::uint32_t word = own.bits(base + lane);
    const ChunkMask mask = count_mask(word);
    const bool fits = mask.total <= kListItems;
#pragma unroll 1
    for (unsigned half = 0; half < (fits ? 1 : 2); ++half) {
      std::uint32_t bits = fits ? word : word & 0xFFFFu << (16 * half);
      const ChunkMask listed = fits ? mask : count_mask(bits);
      std::uint32_t to = listed.before;
      for (; bits != 0; bits &= bits - 1) list[to++] = static_cast<std::uint16_t>(lane * 32 + __ffs(bits) - 1);
      __syncwarp();
      for (std::uint32_t first = lane; first < listed.total; first += 32 * kAhead) {
        std::uint32_t local[kAhead];
        Bits value[kAhead];
#pragma unroll
        for (unsigned k = 0; k < kAhead; ++k) {
          if (first + k * 32 < listed.total) {
            local[k] = base * 32 + list[first + k * 32];
            value[k] = x[own.group(g, local[k] / 8) * 8 + local[k] % 8];
          }
        }
#pragma unroll
        for (unsigned k = 0; k < kAhead; ++k) {
          if (first + k * 32 < listed.total) add(local[k], value[k]);
        }
      }
      __syncwarp();
    }
  }
  __syncthreads();
  std::uint32_t* out = payload + std::uint64_t{own.block} * count;
  for (std::uint32_t c = threadIdx.x; c < count; c += kBlockThreads) store_once(out + c, cells[c]);
}

}  // namespace

cudaError_t sketch_blocks(const Geometry& g, const Conversion& how, const void* x, const std::uint8_t* turned,
                          void* payload, cudaStream_t stream) {
  const std::size_t bytes = std::size_t{kSubtables} * g.subtable * sizeof(std::uint32_t);
  cudaError_t code = cudaSuccess;
  with_bits(g.type, [&](auto b) {
    using Bits = decltype(b);
    code = allow_shared(sketch_own<Bits>);
    if (code != cudaSuccess) return;
    follow(sketch_own<Bits>, g.blocks, kBlockThreads, bytes, stream, g, how, static_cast<const Bits*>(x), turned,
           static_cast<std::uint32_t*>(payload));
    code = cudaGetLastError();
  });
  return code;
}

}  // namespace peel::cuda::detail
