// Items that did not peel, noted once each.
#pragma once

#include <cooperative_groups.h>

#include "codec/cuda/kernels.h"

namespace peel::cuda::detail {

// Lanes that lose items together ask for their numbers together. One by one they queued up for the counter: decoding
// 2^27 float32 at 70% of which nothing peels took 219 ms on an H200, and takes 4.
__device__ inline void note_loss(const Losses& losses, std::uint64_t item, Status* status) {
  const auto lanes = cooperative_groups::coalesced_threads();
  unsigned long long first = 0;
  if (lanes.thread_rank() == 0) {
    first =
        atomicAdd(reinterpret_cast<unsigned long long*>(&status->lost), static_cast<unsigned long long>(lanes.size()));
  }
  const std::uint64_t number = lanes.shfl(first, 0) + lanes.thread_rank();
  if (number < losses.room) losses.items[number] = item;
  if (losses.kept != nullptr) {
    atomicAnd(reinterpret_cast<unsigned long long*>(losses.kept + item / 64), ~(1ull << (item % 64)));
  }
}

// What an element of a lost item was before: x's, or zero where there is no x.
template <typename Bits>
__device__ Bits old_value(const Geometry& g, const Bits* x, std::uint64_t item, std::uint32_t lane) {
  const std::uint64_t element = (item << g.grain_log2) + lane - g.lead;
  return x != nullptr && element < g.elements ? x[element] : Bits{0};
}

// A block with more members than cells is not tried. The place of its members' list then serves for a flag for each of
// its cells, whether any member is in it: lose_overfull() sets them, since the others must be zero. All threads of the
// thread block that has the block call this.
__device__ inline void forget_members(const Dealt& dealt, std::uint32_t block) {
  std::uint32_t* flags = dealt.locals + std::uint64_t{block} * dealt.capacity;
  for (std::uint32_t c = threadIdx.x; c < dealt.capacity; c += blockDim.x) flags[c] = 0;
}

}  // namespace peel::cuda::detail
