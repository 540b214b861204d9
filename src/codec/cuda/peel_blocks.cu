// peel_blocks: sketches of single elements with fixed32 cells, a thread block for each block of the sketch, everything
// in shared memory. The members of a block are found in two ways:
//
//   turned   many blocks: the thread block goes through its groups of a turned bitmap, and writes all elements of its
//            groups, zeros too, 32 bytes at a time. Nothing has to be cleared or put in order, and x is written once.
//   dealt    few blocks: the members were listed before by all multiprocessors (deal.cu), and each value goes to the
//            rank of its item; expand.cu does the rest.
//
// Phases: members are entered into words; cells come in; rounds (peel_rounds.cuh); cells are checked; values go out. An
// item that is taken from a cell leaves it empty for good, so its value stays there until the end, and the cell's word
// becomes the item's number with degree kHome.
//
// Shared memory: [cells: 4 bytes each][words: 4][lists: 2 for each of 3 x list_room]. With 11,520 cells that is 104,448
// bytes, and two thread blocks fit on a Hopper multiprocessor: while one waits at a barrier, the other works. Before
// the cells come in, their place serves for lists of members.
#include <cub/block/block_reduce.cuh>

#include "codec/cuda/conversion.cuh"
#include "codec/cuda/device_limits.h"
#include "codec/cuda/element_bits.cuh"
#include "codec/cuda/losses.cuh"
#include "codec/cuda/median.cuh"
#include "codec/cuda/own_groups.cuh"
#include "codec/cuda/peel_rounds.cuh"

namespace peel::cuda::detail {

namespace {

using peel::detail::Cells;
using peel::detail::item_at;

constexpr int kBlockThreads = 512;
constexpr unsigned kDegreeBits = 8;
constexpr std::uint32_t kDegree = 0xFF;
constexpr std::uint32_t kHome = 0xFF;  // the degree of a cell that keeps the value of its word's item
constexpr std::uint64_t kMaxLocals = std::uint64_t{1} << (32 - kDegreeBits);

struct BlockMemory {
  std::uint32_t* cells;
  std::uint32_t* words;
  PeelLists lists;
};

constexpr std::size_t kListBytes = kBlockThreads / 32 * kChunk * sizeof(std::uint16_t);

__host__ __device__ std::size_t cell_words(const Geometry& g) {
  const std::size_t cells = std::size_t{kSubtables} * g.subtable;
  return cells * 4 < kListBytes ? kListBytes / 4 : cells;
}

std::size_t memory_bytes(const Geometry& g) {
  return (cell_words(g) + std::size_t{kSubtables} * g.subtable) * 4 +
         std::size_t{kSubtables} * list_room(g.subtable) * 2;
}

// What a block's peeling came to.
struct Outcome {
  std::uint32_t items;
  std::uint32_t rounds;
  bool tried;
  bool clean;
};

// Enters, loads, peels and checks; members(enter) calls enter(local) for each member of this thread.
template <typename Members>
__device__ Outcome peel_block(const Geometry& g, const FullCellMap& map, const std::uint32_t* in, const BlockMemory& m,
                              Members&& members) {
  using Sum = cub::BlockReduce<std::uint64_t, kBlockThreads>;
  __shared__ typename Sum::TempStorage reduce;
  __shared__ std::uint64_t totals;  // items below, degrees above
  const std::uint32_t count = kSubtables * g.subtable;
  for (std::uint32_t c = threadIdx.x; c < count; c += kBlockThreads) m.words[c] = 0;
  if (threadIdx.x < kSubtables) m.lists.ends[threadIdx.x] = m.lists.starts[threadIdx.x] = 0;
  __syncthreads();

  std::uint64_t seen = 0;
  members([&](std::uint32_t local) {
    const Cells at = map.at(local);
#pragma unroll
    for (unsigned j = 0; j < kSubtables; ++j) {
      atomicAdd(m.words + j * g.subtable + at.cell[j], local << kDegreeBits | 1u);
    }
    ++seen;
  });
  __syncthreads();
  for (std::uint32_t c = threadIdx.x; c < count; c += kBlockThreads) m.cells[c] = load_once(in + c);

  // Degrees add up to three times the items unless one wrapped, which happens to no plan's supports but may to chosen
  // ones; such a block, and one with more items than cells, is not tried.
  const std::uint64_t degrees = list_lonely<kDegreeBits>(m.lists, m.words);
  const std::uint64_t sums = Sum(reduce).Sum(seen | degrees << 32);
  if (threadIdx.x == 0) totals = sums;
  __syncthreads();
  Outcome outcome;
  outcome.items = static_cast<std::uint32_t>(totals);
  outcome.rounds = 0;
  outcome.tried = outcome.items <= count && totals >> 32 == std::uint64_t{kSubtables} * outcome.items;
  if (outcome.tried) {
    outcome.rounds = peel_rounds<kDegreeBits>(
        m.lists, m.words,
        [&](unsigned j, std::uint32_t cell, std::uint32_t word) {
          const std::uint32_t entry = word;  // its number and degree 1: what has to leave the other cells
          const Cells at = map.at(word >> kDegreeBits);
          const std::uint32_t value = signed_cell(m.cells[j * g.subtable + cell], at.signs, j);
#pragma unroll
          for (unsigned other = 0; other < kSubtables; ++other) {
            if (other == j) continue;
            const std::uint32_t to = other * g.subtable + at.cell[other];
            atomicAdd(m.cells + to, signed_cell(value, ~at.signs, other));
            const std::uint32_t old = atomicSub(m.words + to, entry);
            if ((old & kDegree) == 2) m.lists.push(other, at.cell[other]);
          }
          m.cells[j * g.subtable + cell] = value;
          m.words[j * g.subtable + cell] = word | kHome;
        },
        [] {});
  }
  bool clean = true;
  if (outcome.tried) {
    for (std::uint32_t c = threadIdx.x; c < count; c += kBlockThreads) {
      clean &= (m.words[c] & kDegree) != 0 || m.cells[c] == 0;
    }
  }
  outcome.clean = __syncthreads_and(clean) != 0;
  return outcome;
}

// Where the value of a member is among the cells, or ~0: it did not peel.
__device__ std::uint32_t find_home(const Geometry& g, const Cells& at, std::uint32_t local, const BlockMemory& m) {
  const std::uint32_t home = local << kDegreeBits | kHome;
  std::uint32_t found = ~0u;
#pragma unroll
  for (unsigned j = 0; j < kSubtables; ++j) {
    const std::uint32_t c = j * g.subtable + at.cell[j];
    if (m.words[c] == home) found = c;
  }
  return found;
}

// A member that did not peel: noted, and the cell of its estimate. Rare, so it stays out of the way of the others;
// arguments by value, since references would put kernel parameters on every thread's stack.
__device__ __noinline__ std::uint32_t note_lost(Cells at, const std::uint32_t* cells, std::uint32_t subtable,
                                                std::uint64_t item, Losses losses, Status* status) {
  note_loss(losses, item, status);
  atomicAdd(reinterpret_cast<unsigned long long*>(&status->recovered), ~0ull);
  const auto seen = [&](unsigned j) {
    return static_cast<int>(signed_cell(cells[j * subtable + at.cell[j]], at.signs, j));
  };
  return static_cast<std::uint32_t>(middle(seen(0), seen(1), seen(2)));
}

template <typename Bits>
__device__ Bits value_of(const Geometry& g, const Conversion& how, const FullCellMap& map, const BlockMemory& m,
                         std::uint32_t local, bool tried, std::uint64_t item, const Bits* x, const Losses& losses,
                         Status* status) {
  const Cells at = map.at(local);
  const std::uint32_t home = find_home(g, at, local, m);
  if (home == ~0u || !tried) {
    const std::uint32_t estimate = note_lost(at, m.cells, g.subtable, item, losses, status);
    if (!losses.estimate) return x != nullptr ? x[item] : Bits{0};
    return static_cast<Bits>(from_cell(estimate, how));
  }
  return static_cast<Bits>(from_cell(m.cells[home], how));
}

// Two lanes store the 8 elements of each other's groups, so that one instruction fills whole sectors. All lanes of a
// warp call it; `group` is past the end where a lane has none.
__device__ void store_pair(const Geometry& g, std::uint64_t group, const std::uint32_t (&value)[8], std::uint32_t* x) {
  const bool odd = threadIdx.x & 1;
  const std::uint64_t other = __shfl_xor_sync(kAll, static_cast<unsigned long long>(group), 1);
  uint4 mine;
  uint4 theirs;
  const auto trade = [&](std::uint32_t low, std::uint32_t high, std::uint32_t& kept, std::uint32_t& got) {
    kept = odd ? high : low;
    got = __shfl_xor_sync(kAll, odd ? low : high, 1);
  };
  trade(value[0], value[4], mine.x, theirs.x);
  trade(value[1], value[5], mine.y, theirs.y);
  trade(value[2], value[6], mine.z, theirs.z);
  trade(value[3], value[7], mine.w, theirs.w);
  // Even lanes hold the first halves of both groups, odd ones the second halves.
  const std::uint64_t even_group = odd ? other : group;
  const std::uint64_t odd_group = odd ? group : other;
  const auto store = [&](std::uint64_t at, const uint4& half) {
    const std::uint64_t first = at * 8 + (odd ? 4 : 0);
    if (first + 4 <= g.elements) {
      __stcs(reinterpret_cast<uint4*>(x + first), half);
    } else if (first < g.elements) {
      const std::uint32_t last[4] = {half.x, half.y, half.z, half.w};
      for (unsigned i = 0; first + i < g.elements; ++i) x[first + i] = last[i];
    }
  };
  store(even_group, odd ? theirs : mine);
  store(odd_group, odd ? mine : theirs);
}

template <typename Bits>
__device__ void store_group(const Geometry& g, std::uint64_t group, const Bits (&value)[8], Bits* x) {
  if constexpr (sizeof(Bits) == 4) {
    if (reinterpret_cast<std::uintptr_t>(x) % 16 == 0) return store_pair(g, group, value, x);
  }
  const std::uint64_t first = group * 8;
#pragma unroll
  for (unsigned i = 0; i < 8; ++i) {
    if (first + i < g.elements) x[first + i] = value[i];
  }
}

__device__ BlockMemory block_memory(const Geometry& g, std::uint32_t* memory, std::uint32_t* ends) {
  std::uint32_t* words = memory + cell_words(g);
  return {memory,
          words,
          {reinterpret_cast<std::uint16_t*>(words + kSubtables * g.subtable), ends, ends + kSubtables,
           list_room(g.subtable), g.subtable}};
}

template <typename Bits>
__global__ void __launch_bounds__(kBlockThreads, 2)
    peel_turned(Geometry g, Conversion how, const std::uint64_t* items, const std::uint8_t* turned,
                const std::uint64_t* flag_word, const std::uint32_t* __restrict__ payload, Bits* x, Losses losses,
                Status* status) {
  extern __shared__ std::uint32_t memory[];
  __shared__ std::uint32_t ends[2 * kSubtables];
  const std::uint64_t past = g.items % 64 == 0 ? 0 : items[g.items / 64] >> (g.items % 64);
  if (past != 0 || *flag_word != 0) {
    if (blockIdx.x == 0 && threadIdx.x == 0) {
      atomicOr(&status->flags, (past != 0 || (*flag_word & ~kFlagOverflow) != 0 ? kCorrupt : 0u) |
                                   ((*flag_word & kFlagOverflow) != 0 ? kOverflow : 0u));
    }
    return;
  }
  const OwnGroups own(g, turned);
  const FullCellMap map(g, own.block);
  const BlockMemory m = block_memory(g, memory, ends);
  const unsigned lane = threadIdx.x & 31;
  const std::uint32_t* in = payload + std::uint64_t{own.block} * kSubtables * g.subtable;
  const Outcome outcome = peel_block(g, map, in, m, [&](auto&& enter) {
    auto* list = reinterpret_cast<std::uint16_t*>(m.cells) + (threadIdx.x >> 5) * kChunk;
    for (std::uint32_t base = threadIdx.x - lane; base < own.fours; base += kBlockThreads) {
      const ChunkMask mask = count_mask(own.bits(base + lane));
      std::uint32_t to = mask.before;
      for (std::uint32_t bits = mask.word; bits != 0; bits &= bits - 1) {
        list[to++] = static_cast<std::uint16_t>(lane * 32 + __ffs(bits) - 1);
      }
      __syncwarp();
      for (std::uint32_t i = lane; i < mask.total; i += 32) enter(base * 32 + list[i]);
      __syncwarp();
    }
  });
  if (!outcome.clean) {
    if (threadIdx.x == 0) atomicOr(&status->flags, kCorrupt);
    return;
  }
  if (threadIdx.x == 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(&status->items), outcome.items);
    atomicAdd(reinterpret_cast<unsigned long long*>(&status->recovered), outcome.items);
    atomicMax(&status->rounds, outcome.rounds);
  }
  for (std::uint32_t base = threadIdx.x - lane; base < own.fours; base += kBlockThreads) {  // whole warps: lanes trade
    const std::uint32_t four = base + lane;
    const std::uint32_t all = own.bits(four);
#pragma unroll 1
    for (unsigned k = 0; k < 4; ++k) {
      const std::uint32_t stripe = four * 4 + k;
      const std::uint64_t group = stripe < own.stripes ? own.group(g, stripe) : g.elements;
      Bits value[8] = {};
      for (std::uint32_t byte = all >> (8 * k) & 0xFF; byte != 0; byte &= byte - 1) {
        const unsigned bit = __ffs(byte) - 1;
        const Bits out = value_of(g, how, map, m, stripe * 8 + bit, outcome.tried, group * 8 + bit, x, losses, status);
#pragma unroll
        for (unsigned i = 0; i < 8; ++i) value[i] = i == bit ? out : value[i];
      }
      __syncwarp();
      store_group(g, group, value, x);
    }
  }
}

template <typename Bits>
__global__ void __launch_bounds__(kBlockThreads, 2)
    peel_dealt(Geometry g, Conversion how, Dealt dealt, const std::uint32_t* __restrict__ payload, const Bits* x,
               Bits* __restrict__ values, Losses losses, Status* status) {
  extern __shared__ std::uint32_t memory[];
  __shared__ std::uint32_t ends[2 * kSubtables];
  const std::uint32_t block = blockIdx.x;
  const std::uint32_t members = dealt.counts[std::uint64_t{block} * kCountStride];
  // Other thread blocks may report damage meanwhile: all threads of this one go by what any of them saw.
  const bool refused = __syncthreads_or((status->flags & (kOverflow | kCorrupt | kNoRoom)) != 0) != 0;
  if (refused || members > dealt.capacity) return;
  const FullCellMap map(g, block);
  const BlockMemory m = block_memory(g, memory, ends);
  const std::uint64_t first = std::uint64_t{block} * dealt.capacity;
  const std::uint32_t* in = payload + std::uint64_t{block} * kSubtables * g.subtable;
  const Outcome outcome = peel_block(g, map, in, m, [&](auto&& enter) {
    for (std::uint32_t i = threadIdx.x; i < members; i += kBlockThreads) enter(dealt.locals[first + i]);
  });
  if (!outcome.clean) {
    if (threadIdx.x == 0) atomicOr(&status->flags, kCorrupt);
    return;
  }
  if (threadIdx.x == 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(&status->recovered), outcome.items);
    atomicMax(&status->rounds, outcome.rounds);
  }
  for (std::uint32_t i = threadIdx.x; i < members; i += kBlockThreads) {
    const std::uint32_t local = dealt.locals[first + i];
    values[dealt.ranks[first + i]] =
        value_of(g, how, map, m, local, outcome.tried, item_at(g, {block, local}), x, losses, status);
  }
}

std::uint64_t local_ids(const Geometry& g) { return std::uint64_t{stripes_of(g)} * 8; }

}  // namespace

bool peels_on_chip(const Geometry& g) {
  std::size_t limit = 0;
  if (shared_limit(limit) != cudaSuccess) return false;
  return g.grain == 1 && g.cells == CellType::fixed32 && has_full_blocks(g) && local_ids(g) < kMaxLocals &&
         memory_bytes(g) + 1024 <= limit;  // beside the little that the kernels declare themselves
}

cudaError_t peel_blocks(const Geometry& g, const Conversion& how, const Items& all, const std::uint8_t* turned,
                        const std::uint64_t* flag_word, const void* payload, void* x, const Losses& losses,
                        Status* status, cudaStream_t stream) {
  cudaError_t code = cudaSuccess;
  with_bits(g.type, [&](auto b) {
    using Bits = decltype(b);
    code = allow_shared(peel_turned<Bits>, memory_bytes(g));
    if (code != cudaSuccess) return;
    peel_turned<Bits><<<g.blocks, kBlockThreads, memory_bytes(g), stream>>>(g, how, all.words, turned, flag_word,
                                                                            static_cast<const std::uint32_t*>(payload),
                                                                            static_cast<Bits*>(x), losses, status);
    code = cudaGetLastError();
  });
  return code;
}

cudaError_t peel_members(const Geometry& g, const Conversion& how, const Dealt& dealt, const void* payload,
                         const void* x, void* values, const Losses& losses, Status* status, cudaStream_t stream) {
  cudaError_t code = cudaSuccess;
  with_bits(g.type, [&](auto b) {
    using Bits = decltype(b);
    code = allow_shared(peel_dealt<Bits>, memory_bytes(g));
    if (code != cudaSuccess) return;
    peel_dealt<Bits><<<g.blocks, kBlockThreads, memory_bytes(g), stream>>>(
        g, how, dealt, static_cast<const std::uint32_t*>(payload), static_cast<const Bits*>(x),
        static_cast<Bits*>(values), losses, status);
    code = cudaGetLastError();
  });
  return code;
}

}  // namespace peel::cuda::detail
