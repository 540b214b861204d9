// What sketching and peeling a block have in common: an item's cells, the members of a cell, and scratch memory.
#if defined(PEEL_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PEEL_BLOCK_INL_H_
#undef PEEL_BLOCK_INL_H_
#else
#define PEEL_BLOCK_INL_H_
#endif

#include <algorithm>
#include <cstring>
#include <utility>

#include <hwy/highway.h>

#include <hwy/cache_control.h>

#include "codec/cpu/sketch_kernels.h"
#include "plan/mapping.h"

HWY_BEFORE_NAMESPACE();
namespace peel::detail::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// An item's cells, numbered through the block, and its signs: 16 bits each.
using Triple = std::uint64_t;
template <std::uint32_t kSubtable>
HWY_INLINE std::uint32_t cell_at(Triple t) {
  return static_cast<std::uint16_t>(t >> (16 * kSubtable));
}
template <typename Cell, std::uint32_t kSubtable>
HWY_INLINE Cell signed_at(Triple t, Cell value) {
  return with_sign(value, static_cast<std::uint32_t>(t >> 48) & 7, kSubtable);
}

inline void hash_block(const Geometry& g, const BlockItems& items, Triple* HWY_RESTRICT triples) {
  const std::uint32_t key = block_key(g, items.block);
  const std::uint32_t subtable = g.subtable;
  const std::uint32_t bits = g.permutation_bits;
  const std::uint32_t room = digit_room(subtable, bits);
  const std::uint32_t* HWY_RESTRICT locals = items.locals;
  for (std::uint32_t i = 0; i < items.count; ++i) {
    const Cells at = cells_with_room(subtable, bits, room, key, locals[i]);
    triples[i] = std::uint64_t{at.cell[0]} | std::uint64_t{at.cell[1] + subtable} << 16 |
                 std::uint64_t{at.cell[2] + 2 * subtable} << 32 | std::uint64_t{at.signs} << 48;
  }
}

// Cuts one allocation into arrays.
class Carver {
 public:
  explicit Carver(Buffer<std::byte>& memory) : memory_(memory) {}
  template <typename T>
  std::size_t plan(std::size_t count) {
    const std::size_t at = size_;
    size_ += (count * sizeof(T) + 127) / 64 * 64;  // a spare line for vectors that write past the end
    return at;
  }
  void allocate() { memory_.resize(std::max(memory_.size(), size_)); }
  template <typename T>
  T* at(std::size_t offset) {
    return reinterpret_cast<T*>(memory_.data() + offset);
  }

 private:
  Buffer<std::byte>& memory_;
  std::size_t size_ = 0;
};

// Lanes handled at a time: a cache line of cells, or the whole grain if that is less.
template <typename Cell>
HWY_INLINE std::uint32_t step_lanes(const Geometry& g) {
  return std::min<std::uint32_t>(g.grain, 64 / sizeof(Cell));
}

template <typename Cell>
HWY_INLINE const Cell* source_lanes(const Geometry& g, const BlockItems& items, std::uint32_t i) {
  const std::uint64_t source = items.sources[i];
  const std::uint64_t rank = source & ((std::uint64_t{1} << 48) - 1);
  return reinterpret_cast<const Cell*>(items.from[source >> 48]) + (rank << g.grain_log2);
}

// Who is in each cell: members of cell c are entries[ends[c - 1] .. ends[c]), in item order.
struct Members {
  std::uint32_t* ends;
  std::uint32_t* entries;  // item, and its sign in the top bit

  [[nodiscard]] HWY_INLINE std::uint32_t begin(std::size_t c) const { return c == 0 ? 0 : ends[c - 1]; }
};
constexpr std::uint32_t kNegative = 0x80000000u;

inline void find_members(std::size_t count, std::uint32_t items, const Triple* HWY_RESTRICT triples,
                         const Members& members) {
  std::uint32_t* HWY_RESTRICT at = members.ends;
  std::memset(at, 0, count * sizeof(std::uint32_t));
  for (std::uint32_t i = 0; i < items; ++i) {
    const Triple t = triples[i];
    ++at[cell_at<0>(t)];
    ++at[cell_at<1>(t)];
    ++at[cell_at<2>(t)];
  }
  std::uint32_t next = 0;
  for (std::size_t c = 0; c < count; ++c) next += std::exchange(at[c], next);
  // Each cell's cursor moves from its first entry to its end.
  for (std::uint32_t i = 0; i < items; ++i) {
    const Triple t = triples[i];
    const auto signs = static_cast<std::uint32_t>(t >> 48);
    members.entries[at[cell_at<0>(t)]++] = i | (signs & 1) << 31;
    members.entries[at[cell_at<1>(t)]++] = i | (signs & 2) << 30;
    members.entries[at[cell_at<2>(t)]++] = i | (signs & 4) << 29;
  }
}

template <typename Cell>
HWY_INLINE void fetch_lanes(const Cell* lanes, std::uint32_t grain) {
  for (std::uint32_t lane = 0; lane < grain; lane += 64 / sizeof(Cell)) hwy::Prefetch(lanes + lane);
}

// visit(std::integral_constant<lanes>) for a power of two from 2 to 16.
template <typename Visitor>
HWY_INLINE decltype(auto) with_lanes(std::uint32_t lanes, Visitor&& visit) {
  switch (lanes) {
    case 2:
      return visit(std::integral_constant<std::uint32_t, 2>{});
    case 4:
      return visit(std::integral_constant<std::uint32_t, 4>{});
    case 8:
      return visit(std::integral_constant<std::uint32_t, 8>{});
    default:
      return visit(std::integral_constant<std::uint32_t, 16>{});
  }
}

// visit(Cell{}) for a sketch's cells.
template <typename Visitor>
HWY_INLINE decltype(auto) with_counter(const Geometry& g, Visitor&& visit) {
  switch (g.cells) {
    case CellType::fixed64:
      return visit(std::uint64_t{});
    case CellType::float32:
      return visit(float{});
    default:
      return visit(std::uint32_t{});
  }
}

}  // namespace peel::detail::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
