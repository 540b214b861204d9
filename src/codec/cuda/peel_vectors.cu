// Peeling for any grain, type and cells, in two kernels: ids and degrees alone decide who peels when, so that is found
// out once for a block (order), and the values follow, each slice of an item's lanes in a thread block of its own.
//
// order: a thread block for each block of the sketch. Members are entered into words and taken in rounds
// (peel_rounds.cuh); the taken ones are written down visit by visit, then those that are left.
//
// values: a thread block for each block and each slice of kLanes lanes. The cells of the slice come in, and visit after
// visit the members that were taken in it give their values and are subtracted elsewhere; the next visit's members are
// fetched before the barrier. In the end all cells without lost members must be zero.
//
// Words, lists and ids, or the cells of a slice, live in shared memory where they fit, else in scratch memory on the
// device that only this thread block touches (read past the L1 cache, which atomics do not reach).
#include "codec/cuda/cell_map.cuh"
#include "codec/cuda/conversion.cuh"
#include "codec/cuda/device_limits.h"
#include "codec/cuda/element_bits.cuh"
#include "codec/cuda/losses.cuh"
#include "codec/cuda/median.cuh"
#include "codec/cuda/peel_rounds.cuh"
#include "codec/cuda/tiles.cuh"

namespace peel::cuda::detail {

namespace {

using peel::detail::Cells;
using peel::detail::item_at;

constexpr int kOrderThreads = 1024;
constexpr int kValueThreads = 1024;
constexpr unsigned kDegreeBits = 16;   // a block has at most 65,535 cells, and tried members are not more
constexpr unsigned kSubtableBit = 30;  // of an end: the subtable that was visited is above

constexpr std::size_t align(std::size_t bytes) { return (bytes + 15) / 16 * 16; }

// What `order` leaves behind for `values`.
struct Order {
  uint2* members;         // blocks x capacity: local id and rank, in the order in which they were taken, then the lost
  std::uint32_t* ends;    // blocks x capacity: how many were taken when a visit ended; only visits that took something
  std::uint32_t* visits;  // by block: how many those are
};

// Memory of `order`: [words][locals][taken bits][lists].
std::size_t order_bytes(const Geometry& g) {
  const std::size_t cells = std::size_t{kSubtables} * g.subtable;
  return align(cells * 8 + (cells + 31) / 32 * 4 + std::size_t{kSubtables} * list_room(g.subtable) * 2);
}

__global__ void __launch_bounds__(kOrderThreads) find_order(Geometry g, Dealt dealt, Order order, std::byte* scratch,
                                                            std::size_t scratch_bytes, Losses losses, Status* status) {
  extern __shared__ __align__(16) std::uint64_t memory[];
  __shared__ std::uint32_t ends[2 * kSubtables];
  __shared__ std::uint32_t position;
  const std::uint32_t block = blockIdx.x;
  const std::uint32_t members = dealt.counts[std::uint64_t{block} * kCountStride];
  if (threadIdx.x == 0) order.visits[block] = 0;
  // Other thread blocks may report damage meanwhile: all threads of this one go by what any of them saw.
  const bool refused = __syncthreads_or((status->flags & (kOverflow | kCorrupt | kNoRoom)) != 0) != 0;
  if (refused) return;
  if (members > dealt.capacity) return forget_members(dealt, block);

  const std::uint32_t count = kSubtables * g.subtable;
  auto* words = reinterpret_cast<std::uint32_t*>(scratch == nullptr ? reinterpret_cast<std::byte*>(memory)
                                                                    : scratch + block * scratch_bytes);
  std::uint32_t* locals = words + count;
  std::uint32_t* taken = locals + count;
  const PeelLists lists{reinterpret_cast<std::uint16_t*>(taken + (count + 31) / 32), ends, ends + kSubtables,
                        list_room(g.subtable), g.subtable};
  for (std::uint32_t c = threadIdx.x; c < count; c += kOrderThreads) words[c] = 0;
  for (std::uint32_t w = threadIdx.x; w < (count + 31) / 32; w += kOrderThreads) taken[w] = 0;
  if (threadIdx.x < 2 * kSubtables) ends[threadIdx.x] = 0;
  if (threadIdx.x == 0) position = 0;
  __syncthreads();

  const CellMap map(g, block);
  const std::uint64_t first = std::uint64_t{block} * dealt.capacity;
  for (std::uint32_t m = threadIdx.x; m < members; m += kOrderThreads) {
    const std::uint32_t local = dealt.locals[first + m];
    locals[m] = local;
    const Cells at = map.at(local);
#pragma unroll
    for (unsigned j = 0; j < kSubtables; ++j) atomicAdd(words + j * g.subtable + at.cell[j], m << kDegreeBits | 1u);
  }
  __syncthreads();
  list_lonely<kDegreeBits>(lists, words);
  __syncthreads();

  std::uint32_t visits = 0;
  std::uint32_t before = 0;
  const std::uint32_t rounds = peel_rounds<kDegreeBits>(
      lists, words,
      [&](unsigned j, std::uint32_t cell, std::uint32_t word) {
        const std::uint32_t m = word >> kDegreeBits;
        const Cells at = map.at(locals[m]);
#pragma unroll
        for (unsigned other = 0; other < kSubtables; ++other) {
          if (other == j) continue;
          const std::uint32_t old = atomicSub(words + other * g.subtable + at.cell[other], m << kDegreeBits | 1u);
          if ((old & 0xFFFF) == 2) lists.push(other, at.cell[other]);
        }
        words[j * g.subtable + cell] = 0;
        atomicOr(taken + m / 32, 1u << (m % 32));
        order.members[first + atomicAdd(&position, 1u)] = make_uint2(locals[m], dealt.ranks[first + m]);
      },
      [&](unsigned j) {
        const std::uint32_t end = static_cast<volatile std::uint32_t&>(position);
        if (threadIdx.x == 0 && end != before) order.ends[first + visits] = end | j << kSubtableBit;
        visits += end != before;
        before = end;
        __syncthreads();
      });
  const std::uint32_t recovered = position;
  __syncthreads();
  for (std::uint32_t m = threadIdx.x; m < members; m += kOrderThreads) {
    if (static_cast<volatile std::uint32_t*>(taken)[m / 32] >> (m % 32) & 1) continue;
    order.members[first + atomicAdd(&position, 1u)] = make_uint2(locals[m], dealt.ranks[first + m]);
    note_loss(losses, item_at(g, {block, locals[m]}), status);
  }
  if (threadIdx.x == 0) {
    order.visits[block] = visits;
    atomicAdd(reinterpret_cast<unsigned long long*>(&status->recovered), recovered);
    atomicMax(&status->rounds, rounds);
  }
}

template <typename Cell>
__device__ Cell read_cell(const Cell* cell, bool on_chip) {
  if (on_chip) return *cell;
  if constexpr (sizeof(Cell) == 4) {
    return __ldcg(cell);
  } else {
    return __ldcg(reinterpret_cast<const unsigned long long*>(cell));
  }
}

// kLanes numbers that lie side by side, as few loads and stores as their size allows; all are aligned to their length.
template <unsigned kLanes, typename Number>
struct alignas(kLanes * sizeof(Number) < 16 ? kLanes * sizeof(Number) : 16) Together {
  Number lane[kLanes];
};

// Memory of `values`: [cells of the slice][a bit for each cell that a lost member is in].
std::size_t slice_bytes(const Geometry& g, unsigned lanes, std::size_t cell_bytes) {
  const std::size_t cells = std::size_t{kSubtables} * g.subtable;
  return align(cells * lanes * cell_bytes) + align((cells + 31) / 32 * 4);
}

template <typename Bits, typename Cell, unsigned kLanes>
__global__ void __launch_bounds__(kValueThreads)
    peel_values(Geometry g, Conversion how, Dealt dealt, Order order, const Cell* __restrict__ payload,
                std::byte* scratch, std::size_t scratch_bytes, const Bits* x, Bits* __restrict__ values, Losses losses,
                Status* status) {
  extern __shared__ __align__(16) std::uint64_t memory[];
  const std::uint32_t slices = g.grain / kLanes;
  const std::uint32_t block = blockIdx.x / slices;
  const std::uint32_t lane = blockIdx.x % slices * kLanes;  // the first of the slice
  const std::uint32_t count = kSubtables * g.subtable;
  const std::uint32_t members = dealt.counts[std::uint64_t{block} * kCountStride];
  const std::uint32_t visits = order.visits[block];
  // Other thread blocks may report damage meanwhile: all threads of this one go by what any of them saw.
  const bool refused = __syncthreads_or((status->flags & (kOverflow | kCorrupt | kNoRoom)) != 0) != 0;
  if (refused || members > dealt.capacity) return;

  const bool on_chip = scratch == nullptr;
  auto* cells =
      reinterpret_cast<Cell*>(on_chip ? reinterpret_cast<std::byte*>(memory) : scratch + blockIdx.x * scratch_bytes);
  auto* disturbed = reinterpret_cast<std::uint32_t*>(reinterpret_cast<std::byte*>(cells) +
                                                     (std::size_t{count} * kLanes * sizeof(Cell) + 15) / 16 * 16);
  const Cell* in = payload + ((std::uint64_t{block} * count) << g.grain_log2) + lane;
  using Slice = Together<kLanes, Cell>;
#pragma unroll 4
  for (std::uint32_t c = threadIdx.x; c < count; c += kValueThreads) {
    reinterpret_cast<Slice*>(cells)[c] = *reinterpret_cast<const Slice*>(in + (std::uint64_t{c} << g.grain_log2));
  }
  for (std::uint32_t w = threadIdx.x; w < (count + 31) / 32; w += kValueThreads) disturbed[w] = 0;

  const CellMap map(g, block);
  const uint2* taken = order.members + std::uint64_t{block} * dealt.capacity;
  const std::uint32_t* ends = order.ends + std::uint64_t{block} * dealt.capacity;
  constexpr std::uint32_t kEnd = (1u << kSubtableBit) - 1;
  std::uint32_t begin = 0;
  std::uint32_t mark = visits == 0 ? 0 : ends[0];
  std::uint32_t end = mark & kEnd;
  uint2 next = threadIdx.x < end ? taken[threadIdx.x] : uint2{};
  __syncthreads();
  for (std::uint32_t visit = 0; visit < visits; ++visit) {
    const unsigned j = mark >> kSubtableBit;
    uint2 member = next;
    mark = visit + 1 < visits ? ends[visit + 1] : mark;
    const std::uint32_t after = mark & kEnd;
    next = end + threadIdx.x < after ? taken[end + threadIdx.x] : uint2{};
    for (std::uint32_t i = begin + threadIdx.x; i < end; i += kValueThreads) {
      if (i >= begin + kValueThreads) member = taken[i];
      const Cells at = map.at(member.x);
      Cell* lonely = cells + std::size_t{j * g.subtable + at.cell[j]} * kLanes;
      Cell value[kLanes];
#pragma unroll
      for (unsigned l = 0; l < kLanes; ++l) {
        value[l] = with_sign(read_cell(lonely + l, on_chip), at.signs, j, how);
        lonely[l] = 0;
      }
#pragma unroll
      for (unsigned other = 0; other < kSubtables; ++other) {
        if (other == j) continue;
        Cell* to = cells + std::size_t{other * g.subtable + at.cell[other]} * kLanes;
#pragma unroll
        for (unsigned l = 0; l < kLanes; ++l) add_to_cell(to + l, with_sign(value[l], ~at.signs, other, how), how);
      }
      Together<kLanes, Bits> out;
#pragma unroll
      for (unsigned l = 0; l < kLanes; ++l) out.lane[l] = static_cast<Bits>(from_cell(value[l], how));
      *reinterpret_cast<Together<kLanes, Bits>*>(values + (std::uint64_t{member.y} << g.grain_log2) + lane) = out;
    }
    begin = end;
    end = after;
    __syncthreads();
  }

  for (std::uint32_t i = begin + threadIdx.x; i < members; i += kValueThreads) {  // the lost
    const uint2 member = taken[i];
    const std::uint64_t item = item_at(g, {block, member.x});
    const Cells at = map.at(member.x);
    Bits* out = values + (std::uint64_t{member.y} << g.grain_log2) + lane;
    for (unsigned l = 0; l < kLanes; ++l) {
      Cell seen[kSubtables];
      for (unsigned j = 0; j < kSubtables; ++j) {
        const std::uint32_t c = j * g.subtable + at.cell[j];
        if (l == 0) atomicOr(disturbed + c / 32, 1u << (c % 32));
        seen[j] = with_sign(read_cell(cells + std::size_t{c} * kLanes + l, on_chip), at.signs, j, how);
      }
      out[l] = losses.estimate ? static_cast<Bits>(from_cell(median(seen[0], seen[1], seen[2], how), how))
                               : old_value(g, x, item, lane + l);
    }
  }
  __syncthreads();
  bool clean = true;
  if (how.cells != CellType::float32) {
    for (std::uint32_t c = threadIdx.x; c < count; c += kValueThreads) {
      if (static_cast<volatile std::uint32_t*>(disturbed)[c / 32] >> (c % 32) & 1) continue;
#pragma unroll
      for (unsigned l = 0; l < kLanes; ++l) clean &= read_cell(cells + std::size_t{c} * kLanes + l, on_chip) == 0;
    }
  }
  if (!clean) atomicOr(&status->flags, kCorrupt);
}

std::size_t cell_bytes(const Geometry& g) { return g.cells == CellType::fixed64 ? 8 : 4; }

// How the work is divided on the current device, and what does not fit on the chip.
struct Division {
  unsigned lanes = 1;
  std::size_t order_shared = 0;
  std::size_t order_scratch = 0;  // of one thread block
  std::size_t value_shared = 0;
  std::size_t value_scratch = 0;  // of one thread block
  std::uint64_t slices = 1;
};

cudaError_t divide(const Geometry& g, Division& division) {
  std::size_t limit = 0;
  const cudaError_t code = shared_limit(limit);
  const std::size_t room = limit < 1024 ? 0 : limit - 1024;  // beside the little that the kernels declare themselves
  (order_bytes(g) <= room ? division.order_shared : division.order_scratch) = order_bytes(g);
  division.lanes = g.grain < 4 ? g.grain : 4;
  while (division.lanes > 1 && slice_bytes(g, division.lanes, cell_bytes(g)) > room) division.lanes /= 2;
  const std::size_t bytes = slice_bytes(g, division.lanes, cell_bytes(g));
  (bytes <= room ? division.value_shared : division.value_scratch) = bytes;
  division.slices = std::uint64_t{g.blocks} * (g.grain / division.lanes);
  return code;
}

struct VectorScratch {
  Order order;
  std::byte* order_scratch;
  std::byte* value_scratch;
  std::size_t bytes;
};

VectorScratch cut(const Geometry& g, const Division& division, void* memory) {
  auto* const base = static_cast<std::byte*>(memory);
  std::size_t used = 0;
  const auto take = [&](std::size_t bytes) {
    std::byte* const at = base == nullptr ? nullptr : base + used;
    used += (bytes + 255) / 256 * 256;
    return at;
  };
  const std::uint64_t members = std::uint64_t{g.blocks} * kSubtables * g.subtable;
  VectorScratch scratch{};
  scratch.order.members = reinterpret_cast<uint2*>(take(members * sizeof(uint2)));
  scratch.order.ends = reinterpret_cast<std::uint32_t*>(take(members * 4));
  scratch.order.visits = reinterpret_cast<std::uint32_t*>(take(std::size_t{g.blocks} * 4));
  scratch.order_scratch = take(g.blocks * division.order_scratch);
  scratch.value_scratch = take(division.slices * division.value_scratch);
  scratch.bytes = used;
  return scratch;
}

template <typename Bits, typename Cell, unsigned kLanes>
cudaError_t launch_values(const Geometry& g, const Conversion& how, const Division& division,
                          const VectorScratch& scratch, const Dealt& dealt, const void* payload, const void* x,
                          void* values, const Losses& losses, Status* status, cudaStream_t stream) {
  const cudaError_t code = allow_shared(peel_values<Bits, Cell, kLanes>);
  if (code != cudaSuccess) return code;
  peel_values<Bits, Cell, kLanes>
      <<<static_cast<unsigned>(division.slices), kValueThreads, division.value_shared, stream>>>(
          g, how, dealt, scratch.order, static_cast<const Cell*>(payload),
          division.value_scratch == 0 ? nullptr : scratch.value_scratch, division.value_scratch,
          static_cast<const Bits*>(x), static_cast<Bits*>(values), losses, status);
  return cudaGetLastError();
}

template <typename Bits, typename Cell>
cudaError_t launch(const Geometry& g, const Conversion& how, const Division& division, const VectorScratch& scratch,
                   const Dealt& dealt, const void* payload, const void* x, void* values, const Losses& losses,
                   Status* status, cudaStream_t stream) {
  const auto peel = division.lanes == 1   ? launch_values<Bits, Cell, 1>
                    : division.lanes == 2 ? launch_values<Bits, Cell, 2>
                                          : launch_values<Bits, Cell, 4>;
  return peel(g, how, division, scratch, dealt, payload, x, values, losses, status, stream);
}

}  // namespace

cudaError_t vector_scratch_bytes(const Geometry& g, std::size_t& bytes) {
  Division division;
  const cudaError_t code = divide(g, division);
  bytes = cut(g, division, nullptr).bytes;
  return code;
}

cudaError_t peel_vectors(const Geometry& g, const Conversion& how, const Dealt& dealt, const void* payload,
                         void* memory, const void* x, void* values, const Losses& losses, Status* status,
                         cudaStream_t stream) {
  Division division;
  cudaError_t code = divide(g, division);
  if (code != cudaSuccess) return code;
  const VectorScratch scratch = cut(g, division, memory);
  code = allow_shared(find_order);
  if (code != cudaSuccess) return code;
  find_order<<<g.blocks, kOrderThreads, division.order_shared, stream>>>(
      g, dealt, scratch.order, division.order_scratch == 0 ? nullptr : scratch.order_scratch, division.order_scratch,
      losses, status);
  code = cudaGetLastError();
  if (code != cudaSuccess) return code;
  with_bits(g.type, [&](auto b) {
    using Bits = decltype(b);
    code =
        g.cells == CellType::fixed64
            ? launch<Bits, std::uint64_t>(g, how, division, scratch, dealt, payload, x, values, losses, status, stream)
            : launch<Bits, std::uint32_t>(g, how, division, scratch, dealt, payload, x, values, losses, status, stream);
  });
  return code;
}

}  // namespace peel::cuda::detail
