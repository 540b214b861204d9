// Peeling one block of a sketch with the threads of one thread block.
//
// Each cell has a word: the sum of the numbers of the items in it above, their count (the degree) in the low
// kDegreeBits bits. One atomic addition enters an item or takes it out, and the word of a cell of degree 1 names its
// item.
//
// A visit of a subtable takes every cell that has degree 1 as it begins. Such cells are not searched for: whoever takes
// an item out of a cell and sees its degree fall to 1 puts the cell on the list of its subtable, which happens to a
// cell once. So a round costs what it takes, not what the block is long. A cell whose last item was taken elsewhere
// meanwhile stays on the list with degree 0 and is passed over. A list is a ring with room for half a subtable, about
// twice what waits in it at once; if it was not enough, the visit looks at all cells.
//
// Barriers: one after each visit. It makes words, cells and lists as the visit left them visible to the next; within a
// visit nobody else touches the cells of its own subtable, since an item has one cell in each.
//
// Words and lists may also lie in device memory, for blocks that fit no chip; they are read as volatile, since the L1
// cache does not see what atomics do.
#pragma once

#include <cstdint>

#include "codec/cuda/tiles.cuh"
#include "plan/mapping.h"

namespace peel::cuda::detail {

using peel::detail::kSubtables;

// The room of a list: a power of two.
__host__ __device__ inline std::uint32_t list_room(std::uint32_t subtable) {
  std::uint32_t room = 64;
  while (room < subtable / 2) room *= 2;
  return room;
}

struct PeelLists {
  std::uint16_t* cells;   // kSubtables rings of `room`
  std::uint32_t* ends;    // one for each ring, and behind them ...
  std::uint32_t* starts;  // ... where the part begins that no visit has seen; all zero before the first push
  std::uint32_t room;
  std::uint32_t subtable;

  // Lanes that ask for their places together (cooperative groups) were slower: the counter is not what they wait for.
  __device__ void push(unsigned j, std::uint32_t cell) const { put(j, atomicAdd(ends + j, 1u), cell); }

  __device__ void put(unsigned j, std::uint32_t at, std::uint32_t cell) const {
    if (at - starts[j] < room) cells[j * room + (at & (room - 1))] = static_cast<std::uint16_t>(cell);
  }
};

// Puts the cells of degree 1 on their lists, eight cells of a thread at a time: a warp asks for their places once. All
// threads call it, and a barrier must follow. Returns the degrees of the cells this thread saw, added up; no sum of
// true ones if one is the largest that a word can hold.
template <unsigned kDegreeBits>
__device__ std::uint32_t list_lonely(const PeelLists& lists, const volatile std::uint32_t* words) {
  constexpr std::uint32_t kDegree = (1u << kDegreeBits) - 1;
  constexpr unsigned kAtOnce = 8;
  std::uint32_t degrees = 0;
  for (unsigned j = 0; j < kSubtables; ++j) {
    for (std::uint32_t base = 0; base < lists.subtable; base += kAtOnce * blockDim.x) {
      const std::uint32_t first = base + threadIdx.x;
      std::uint32_t lonely = 0;
#pragma unroll
      for (unsigned k = 0; k < kAtOnce; ++k) {
        const std::uint32_t c = first + k * blockDim.x;
        const std::uint32_t degree = c < lists.subtable ? words[j * lists.subtable + c] & kDegree : 0;
        degrees += degree == kDegree ? 1u << 24 : degree;  // all ones may have wrapped, and marks a home
        lonely |= (degree == 1 ? 1u : 0u) << k;
      }
      const std::uint32_t own = __popc(lonely);
      std::uint32_t to = lanes_before(own);
      std::uint32_t start = 0;
      if ((threadIdx.x & 31) == 31) start = atomicAdd(lists.ends + j, to + own);
      to += __shfl_sync(kAll, start, 31);
      for (; lonely != 0; lonely &= lonely - 1) lists.put(j, to++, first + (__ffs(lonely) - 1) * blockDim.x);
    }
  }
  return degrees;
}

// take(j, cell, word) takes the item of a lonely cell; ended(j) is called by all threads after the barrier of each
// visit. Returns how many rounds took something.
template <unsigned kDegreeBits, typename Take, typename Ended>
__device__ std::uint32_t peel_rounds(const PeelLists& lists, const volatile std::uint32_t* words, Take&& take,
                                     Ended&& ended) {
  constexpr std::uint32_t kDegree = (1u << kDegreeBits) - 1;
  std::uint32_t done[kSubtables] = {};
  std::uint32_t rounds = 0;
  for (bool progress = true; progress;) {
    progress = false;
#pragma unroll
    for (unsigned j = 0; j < kSubtables; ++j) {
      const std::uint32_t end = static_cast<volatile std::uint32_t*>(lists.ends)[j];
      const bool listed = end - done[j] <= lists.room;
      const std::uint32_t first = listed ? done[j] : 0;
      const std::uint32_t last = listed ? end : lists.subtable;
      bool took = false;
      for (std::uint32_t i = first + threadIdx.x; i < last; i += blockDim.x) {
        const std::uint32_t cell =
            listed ? static_cast<const volatile std::uint16_t*>(lists.cells)[j * lists.room + (i & (lists.room - 1))]
                   : i;
        const std::uint32_t word = words[j * lists.subtable + cell];
        if ((word & kDegree) != 1) continue;
        take(j, cell, word);
        took = true;
      }
      done[j] = end;
      if (threadIdx.x == 0) lists.starts[j] = end;
      progress |= __syncthreads_or(took) != 0;
      ended(j);
    }
    rounds += progress;
  }
  return rounds;
}

}  // namespace peel::cuda::detail
