// peel_blocks: sketches of single elements with fixed32 cells, a thread block for each block of the sketch, everything
// in shared memory. The members of a block are found in two ways:
//
//   turned   the thread block goes through its groups of a turned bitmap, and writes all elements of the groups that
//   have
//            items, zeros too, 16 bytes of a lane at a time where elements have 2 or 4. Groups without items are
//            cleared by other thread blocks of the same grid, in the order in which they lie. x is written once.
//   dealt    large arrays with few blocks, where going through a bitmap would take one thread block too long: the
//            members were listed before by all multiprocessors (deal.cu), and each value goes to the rank of its item;
//            expand.cu does the rest.
//
// Phases: members are entered into words; cells come in; rounds (peel_rounds.cuh); cells are checked; values go out. An
// item that is taken from a cell leaves it empty for good, so its value stays there until the end, and the cell's word
// becomes the item's number with degree kHome.
//
// Members are listed before they are entered, and again before values go out: lanes that walked the bits of their own
// groups waited for each other, and 20 of 32 were active in the whole kernel at 10%.
//
// Shared memory: [cells: 4 bytes each][words: 4][lists: 2 for each of 3 x list_room, or 4 for each member that goes
// out]. With 11,520 cells that is 108,544 bytes, and two thread blocks fit on a Hopper multiprocessor: while one waits
// at a barrier, the other works. Lists of members lie where the cells do before those come in, and where the lists of
// cells do when peeling is over.
#include <algorithm>
#include <cub/block/block_reduce.cuh>

#include "codec/cuda/clear.cuh"
#include "codec/cuda/conversion.cuh"
#include "codec/cuda/device_limits.h"
#include "codec/cuda/element_bits.cuh"
#include "codec/cuda/follow.cuh"
#include "codec/cuda/losses.cuh"
#include "codec/cuda/median.cuh"
#include "codec/cuda/own_groups.cuh"
#include "codec/cuda/peel_rounds.cuh"

namespace peel::cuda::detail {

namespace {

using peel::detail::Cells;
using peel::detail::item_at;

constexpr unsigned kBlockThreads = 512;
// Sketches with no more blocks than there are multiprocessors leave each block one of its own: members that were dealt
// are peeled with all its threads then (buckets of 25 MiB at 1%: 74 instead of 80 us).
constexpr std::uint32_t kFewBlocks = kMultiprocessors;
constexpr unsigned kManyThreads = 1024;
constexpr unsigned kDegreeBits = 8;
constexpr std::uint32_t kDegree = 0xFF;
constexpr std::uint32_t kHome = 0xFF;  // the degree of a cell that keeps the value of its word's item
constexpr std::uint64_t kMaxLocals = std::uint64_t{1} << (32 - kDegreeBits);

struct BlockMemory {
  std::uint32_t* cells;
  std::uint32_t* words;
  PeelLists lists;
};

// Members that a warp lists at once: while they are entered, and while values go out.
constexpr unsigned kBlockWarps = kBlockThreads / 32;
constexpr std::uint32_t kEntered = kChunk;
constexpr std::uint32_t kOut = 256;  // and their values

__host__ __device__ std::size_t cell_words(const Geometry& g) {
  const std::size_t cells = std::size_t{kSubtables} * g.subtable;
  constexpr std::size_t kLists = kBlockWarps * kEntered * sizeof(std::uint16_t) / 4;
  return cells < kLists ? kLists : cells;
}

std::size_t memory_bytes(const Geometry& g) {
  const std::size_t lists = std::size_t{kSubtables} * list_room(g.subtable);
  constexpr std::size_t kLists = kBlockWarps * kOut * sizeof(std::uint32_t);
  return (cell_words(g) + std::size_t{kSubtables} * g.subtable) * 4 + std::max(lists * sizeof(std::uint16_t), kLists);
}

// What a block's peeling came to.
struct Outcome {
  std::uint32_t items;
  std::uint32_t recovered;
  std::uint32_t rounds;
  bool tried;
  bool clean;
};

// Enters, loads, peels and checks, with so many threads; members(enter) calls enter(local) for each member of this one.
template <unsigned kPeelers, typename Members>
__device__ Outcome peel_block(const Geometry& g, const FullCellMap& map, const std::uint32_t* in, const BlockMemory& m,
                              Members&& members) {
  using Sum = cub::BlockReduce<std::uint64_t, kPeelers>;
  __shared__ typename Sum::TempStorage reduce;
  __shared__ std::uint64_t totals;  // items below, degrees above
  const std::uint32_t count = kSubtables * g.subtable;
  for (std::uint32_t c = threadIdx.x; c < count; c += kPeelers) m.words[c] = 0;
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
  for (std::uint32_t c = threadIdx.x; c < count; c += kPeelers) m.cells[c] = load_once(in + c);

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
          const std::uint32_t value = peel::detail::with_sign(m.cells[j * g.subtable + cell], at.signs, j);
#pragma unroll
          for (unsigned other = 0; other < kSubtables; ++other) {
            if (other == j) continue;
            const std::uint32_t to = other * g.subtable + at.cell[other];
            atomicAdd(m.cells + to, peel::detail::with_sign(value, ~at.signs, other));
            const std::uint32_t old = atomicSub(m.words + to, entry);
            if ((old & kDegree) == 2) m.lists.push(other, at.cell[other]);
          }
          m.cells[j * g.subtable + cell] = value;
          m.words[j * g.subtable + cell] = word | kHome;
        },
        [](unsigned) {});
  }
  if (!outcome.tried) {  // words only tell which cells have members, as the rest must be zero all the same
    for (std::uint32_t c = threadIdx.x; c < count; c += kPeelers) m.words[c] = 0;
    __syncthreads();
    members([&](std::uint32_t local) {
      const Cells at = map.at(local);
      for (unsigned j = 0; j < kSubtables; ++j) atomicOr(m.words + j * g.subtable + at.cell[j], 1u);
    });
    __syncthreads();
    for (std::uint32_t c = threadIdx.x; c < count; c += kPeelers) m.cells[c] = load_once(in + c);
  }
  bool clean = true;
  bool whole = outcome.tried;
  std::uint32_t homes = 0;
  for (std::uint32_t c = threadIdx.x; c < count; c += kPeelers) {
    const std::uint32_t degree = m.words[c] & kDegree;
    clean &= degree != 0 || m.cells[c] == 0;
    whole &= degree == 0 || degree == kHome;
    homes += degree == kHome;
  }
  outcome.clean = __syncthreads_and(clean) != 0;
  outcome.recovered = outcome.items;
  if (__syncthreads_and(whole) == 0) {
    const std::uint64_t sum = Sum(reduce).Sum(homes);
    if (threadIdx.x == 0) totals = sum;
    __syncthreads();
    outcome.recovered = static_cast<std::uint32_t>(totals);
  }
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
  const auto seen = [&](unsigned j) {
    return static_cast<int>(peel::detail::with_sign(cells[j * subtable + at.cell[j]], at.signs, j));
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

// ---- members of a turned bitmap

constexpr unsigned kAhead = 4;  // words of each lane: a thread block of 1% reads 100 KB, and would wait for each

// The members in `bits`, 32 of each lane, whose ids begin at `first`: visit(local) by one lane after another.
template <typename Visit>
__device__ void visit_listed(std::uint32_t bits, std::uint32_t first, std::uint16_t* list, Visit&& visit) {
  const unsigned lane = threadIdx.x & 31;
  const ChunkMask mask = count_mask(bits);
  std::uint32_t to = mask.before;
  for (; bits != 0; bits &= bits - 1) list[to++] = static_cast<std::uint16_t>(lane * 32 + __ffs(bits) - 1);
  __syncwarp();
  for (std::uint32_t i = lane; i < mask.total; i += 32) visit(first + list[i]);
  __syncwarp();
}

// All members of a warp's groups, visit(local) by one lane after another. Where kAhead words of each lane have no more
// than `room` members, which is at least 256, they are listed together.
template <typename Visit>
__device__ void each_member(const OwnGroups& own, std::uint16_t* list, std::uint32_t room, Visit&& visit) {
  const unsigned lane = threadIdx.x & 31;
  constexpr std::uint32_t kStep = kBlockThreads * 32;  // ids between the words of a lane
  static_assert(kAhead * kStep <= 1u << 16, "an id on a list has 16 bits");
  for (std::uint32_t base = threadIdx.x - lane; base < own.fours; base += kAhead * kBlockThreads) {
    std::uint32_t word[kAhead];
    std::uint32_t found = 0;
#pragma unroll
    for (unsigned k = 0; k < kAhead; ++k) word[k] = own.bits(base + k * kBlockThreads + lane);
#pragma unroll
    for (unsigned k = 0; k < kAhead; ++k) found += __popc(word[k]);
    std::uint32_t to = lanes_before(found);
    const std::uint32_t total = __shfl_sync(kAll, to + found, 31);
    if (total <= room) {
#pragma unroll
      for (unsigned k = 0; k < kAhead; ++k) {
        for (std::uint32_t bits = word[k]; bits != 0; bits &= bits - 1) {
          list[to++] = static_cast<std::uint16_t>(k * kStep + lane * 32 + __ffs(bits) - 1);
        }
      }
      __syncwarp();
      for (std::uint32_t i = lane; i < total; i += 32) visit(base * 32 + list[i]);
      __syncwarp();
      continue;
    }
#pragma unroll 1
    for (unsigned k = 0; k < kAhead; ++k) {
      const std::uint32_t bits = k == 0 ? word[0] : k == 1 ? word[1] : k == 2 ? word[2] : word[3];
      const bool fits = __reduce_add_sync(kAll, __popc(bits)) <= room;
#pragma unroll 1
      for (unsigned part = 0; part < (fits ? 1 : 4); ++part) {
        visit_listed(fits ? bits : bits & 0xFFu << (8 * part), base * 32 + k * kStep, list, visit);
      }
    }
  }
}

// ---- values

// In groups that have items, all elements that are none.
template <typename Bits>
__device__ void clear_around(const Geometry& g, const OwnGroups& own, std::uint32_t four, std::uint32_t word, Bits* x) {
#pragma unroll 1
  for (unsigned k = 0; k < 4; ++k) {
    const std::uint32_t byte = word >> (8 * k) & 0xFF;
    if (byte == 0) continue;
    const std::uint64_t from = own.group(g, four * 4 + k) * 8;
    for (unsigned i = 0; i < 8 && from + i < g.elements; ++i) {
      if ((byte >> i & 1) == 0) x[from + i] = 0;
    }
  }
}

__device__ BlockMemory block_memory(const Geometry& g, std::uint32_t* memory, std::uint32_t* ends) {
  std::uint32_t* words = memory + cell_words(g);
  return {memory,
          words,
          {reinterpret_cast<std::uint16_t*>(words + kSubtables * g.subtable), ends, ends + kSubtables,
           list_room(g.subtable), g.subtable}};
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
  if constexpr (sizeof(Bits) == 2) {
    if (reinterpret_cast<std::uintptr_t>(x) % 16 == 0 && first + 8 <= g.elements) {
      const auto two = [&](unsigned i) { return value[i] | std::uint32_t{value[i + 1]} << 16; };
      __stcs(reinterpret_cast<uint4*>(x + first), make_uint4(two(0), two(2), two(4), two(6)));
      return;
    }
  }
#pragma unroll
  for (unsigned i = 0; i < 8; ++i) {
    if (first + i < g.elements) x[first + i] = value[i];
  }
}

// The groups that have items, of a block that lost none. A warp lists members, puts their values in the place of their
// ids (the cells, where elements are too long), and then each lane collects those of its own groups.
template <typename Bits>
__device__ void write_groups(const Geometry& g, const Conversion& how, const OwnGroups& own, const FullCellMap& map,
                             const BlockMemory& m, Bits* x) {
  constexpr bool kConverted = sizeof(Bits) <= sizeof(std::uint32_t);
  const unsigned lane = threadIdx.x & 31;
  std::uint32_t* list = reinterpret_cast<std::uint32_t*>(m.lists.cells) + (threadIdx.x >> 5) * kOut;
  std::uint32_t next = own.bits(threadIdx.x);
  for (std::uint32_t base = threadIdx.x - lane; base < own.fours; base += kBlockThreads) {
    const std::uint32_t word = next;
    next = own.bits(base + kBlockThreads + lane);
    const bool fits = __reduce_add_sync(kAll, __popc(word)) <= kOut;
#pragma unroll 1
    for (unsigned part = 0; part < (fits ? 1 : 4); ++part) {
      std::uint32_t bits = fits ? word : word & 0xFFu << (8 * part);
      const ChunkMask mask = count_mask(bits);
      if (mask.total == 0) continue;
      std::uint32_t at = mask.before;
      for (; bits != 0; bits &= bits - 1) list[at++] = (base + lane) * 32 + __ffs(bits) - 1;
      __syncwarp();
      for (std::uint32_t i = lane; i < mask.total; i += 32) {
        const std::uint32_t local = list[i];
        const std::uint32_t cell = m.cells[find_home(g, map.at(local), local, m)];
        list[i] = kConverted ? static_cast<std::uint32_t>(from_cell(cell, how)) : cell;
      }
      __syncwarp();
      at = mask.before;
#pragma unroll 1
      for (unsigned k = fits ? 0 : part; k < (fits ? 4 : part + 1); ++k) {
        const std::uint32_t byte = word >> (8 * k) & 0xFF;
        if (!__any_sync(kAll, byte != 0)) continue;
        Bits value[8];
#pragma unroll
        for (unsigned i = 0; i < 8; ++i) {
          const bool is_item = (byte >> i & 1) != 0;
          value[i] = 0;
          if (is_item) value[i] = static_cast<Bits>(kConverted ? list[at] : from_cell(list[at], how));
          at += is_item;
        }
        store_group(g, byte != 0 ? own.group(g, (base + lane) * 4 + k) : g.elements, value, x);
      }
      __syncwarp();
    }
  }
}

// Which thread blocks of the grid clear: so many, one behind each `apart` that peel as long as those last. All have
// begun when half of the blocks have: clearing to the end, decoding 2^27 float32 at 5% took 496 instead of 450 us on an
// H200, and only at the end 499.
struct Clearing {
  std::uint32_t shares;
  std::uint32_t apart;
};

template <typename Bits>
__global__ void __launch_bounds__(kBlockThreads, 2)
    peel_turned(Geometry g, Conversion how, Clearing clearing, const std::uint64_t* items, const std::uint8_t* turned,
                const std::uint64_t* flag_word, const std::uint32_t* payload, Bits* x, std::uint64_t room,
                Losses losses, Status* status) {
  await_ahead();
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
  const std::uint32_t round = blockIdx.x / (clearing.apart + 1);
  const std::uint32_t block = blockIdx.x - min(round, clearing.shares);
  const bool clears = round < clearing.shares && blockIdx.x % (clearing.apart + 1) == clearing.apart;
  if (clears || block >= g.blocks) {
    const std::uint32_t peeling = min(block, g.blocks);  // before this one
    const auto* groups = reinterpret_cast<const std::uint8_t*>(items);
    return clear_units(g, blockIdx.x - peeling, clearing.shares, x,
                       [&](std::uint64_t unit) { return groups[unit * kUnitElements<Bits> / 8] == 0; });
  }
  const OwnGroups own(g, turned, block);
  const FullCellMap map(g, own.block);
  const BlockMemory m = block_memory(g, memory, ends);
  const std::uint32_t* in = payload + std::uint64_t{own.block} * kSubtables * g.subtable;
  const Outcome outcome = peel_block<kBlockThreads>(g, map, in, m, [&](auto&& enter) {
    each_member(own, reinterpret_cast<std::uint16_t*>(m.cells) + (threadIdx.x >> 5) * kEntered, kEntered, enter);
  });
  if (!outcome.clean) {
    if (threadIdx.x == 0) atomicOr(&status->flags, kCorrupt);
    return;
  }
  if (threadIdx.x == 0) {
    const std::uint64_t before = atomicAdd(reinterpret_cast<unsigned long long*>(&status->items), outcome.items);
    if (before + outcome.items > room) atomicOr(&status->flags, kNoRoom);
    atomicAdd(reinterpret_cast<unsigned long long*>(&status->recovered), outcome.recovered);
    atomicMax(&status->rounds, outcome.rounds);
  }
  if (outcome.recovered == outcome.items) return write_groups(g, how, own, map, m, x);
  for (std::uint32_t four = threadIdx.x; four < own.fours; four += kBlockThreads) {
    clear_around(g, own, four, own.bits(four), x);
  }
  each_member(own, m.lists.cells + (threadIdx.x >> 5) * kOut, kOut, [&](std::uint32_t local) {
    const std::uint64_t item = own.group(g, local / 8) * 8 + local % 8;
    x[item] = value_of(g, how, map, m, local, outcome.tried, item, x, losses, status);
  });
}

template <typename Bits, unsigned kPeelers>
__global__ void __launch_bounds__(kPeelers, 1024 / kPeelers)
    peel_dealt(Geometry g, Conversion how, Dealt dealt, const std::uint32_t* payload, const Bits* x, Bits* values,
               Losses losses, Status* status) {
  await_ahead();
  extern __shared__ std::uint32_t memory[];
  __shared__ std::uint32_t ends[2 * kSubtables];
  const std::uint32_t block = blockIdx.x;
  const std::uint32_t members = dealt.counts[std::uint64_t{block} * kCountStride];
  // Other thread blocks may report damage meanwhile: all threads of this one go by what any of them saw.
  const bool refused = __syncthreads_or((status->flags & (kOverflow | kCorrupt | kNoRoom)) != 0) != 0;
  if (refused) return;
  const std::uint64_t first = std::uint64_t{block} * dealt.capacity;
  if (members > dealt.capacity) return forget_members(dealt, block);
  const FullCellMap map(g, block);
  const BlockMemory m = block_memory(g, memory, ends);
  const std::uint32_t* in = payload + std::uint64_t{block} * kSubtables * g.subtable;
  const Outcome outcome = peel_block<kPeelers>(g, map, in, m, [&](auto&& enter) {
    for (std::uint32_t i = threadIdx.x; i < members; i += kPeelers) enter(dealt.locals[first + i]);
  });
  if (!outcome.clean) {
    if (threadIdx.x == 0) atomicOr(&status->flags, kCorrupt);
    return;
  }
  if (threadIdx.x == 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(&status->recovered), outcome.recovered);
    atomicMax(&status->rounds, outcome.rounds);
  }
  for (std::uint32_t i = threadIdx.x; i < members; i += kPeelers) {
    const std::uint32_t local = dealt.locals[first + i];
    values[dealt.ranks[first + i]] =
        value_of(g, how, map, m, local, outcome.tried, item_at(g, {block, local}), x, losses, status);
  }
}

Clearing clearing_of(const Geometry& g) {
  const std::uint32_t shares = clearing_blocks(g, g.blocks);
  return {shares, shares == 0 ? g.blocks : std::max(1u, g.blocks / shares / 2)};
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
                        const std::uint64_t* flag_word, const void* payload, void* x, std::uint64_t room,
                        const Losses& losses, Status* status, cudaStream_t stream) {
  cudaError_t code = cudaSuccess;
  const Clearing clearing = clearing_of(g);
  with_bits(g.type, [&](auto b) {
    using Bits = decltype(b);
    code = allow_shared(peel_turned<Bits>);
    if (code != cudaSuccess) return;
    follow(peel_turned<Bits>, g.blocks + clearing.shares, kBlockThreads, memory_bytes(g), stream, g, how, clearing,
           all.words, turned, flag_word, static_cast<const std::uint32_t*>(payload), static_cast<Bits*>(x), room,
           losses, status);
    code = cudaGetLastError();
  });
  return code;
}

cudaError_t peel_members(const Geometry& g, const Conversion& how, const Dealt& dealt, const void* payload,
                         const void* x, void* values, const Losses& losses, Status* status, cudaStream_t stream) {
  cudaError_t code = cudaSuccess;
  with_bits(g.type, [&](auto b) {
    using Bits = decltype(b);
    const bool few = g.blocks <= kFewBlocks;
    const auto kernel = few ? peel_dealt<Bits, kManyThreads> : peel_dealt<Bits, kBlockThreads>;
    code = allow_shared(kernel);
    if (code != cudaSuccess) return;
    follow(kernel, g.blocks, few ? kManyThreads : kBlockThreads, memory_bytes(g), stream, g, how, dealt,
           static_cast<const std::uint32_t*>(payload), static_cast<const Bits*>(x), static_cast<Bits*>(values), losses,
           status);
    code = cudaGetLastError();
  });
  return code;
}

}  // namespace peel::cuda::detail
