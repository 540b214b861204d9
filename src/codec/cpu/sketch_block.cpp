// One block of a sketch, in cache: adding items to it. codec/reference/sketch.cpp is the specification.
//
// With grain 1 every item is added to its three cells. With a larger grain a block's vectors do not fit in cache, so
// they are pulled instead of pushed: a cell is the sum of its members' vectors, and is written once. Adding every item
// to three cells moves twice the bytes.
#include "codec/cpu/sketch_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/cpu/sketch_block.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "codec/cpu/block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace peel::detail::cpu::HWY_NAMESPACE {

template <typename Cell>
void add_single(std::uint32_t count, const Triple* HWY_RESTRICT triples, const Cell* HWY_RESTRICT values,
                Cell* HWY_RESTRICT cells) {
  for (std::uint32_t i = 0; i < count; ++i) {
    const Triple t = triples[i];
    const Cell value = values[i];
    cells[cell_at<0>(t)] += signed_at<Cell, 0>(t, value);
    cells[cell_at<1>(t)] += signed_at<Cell, 1>(t, value);
    cells[cell_at<2>(t)] += signed_at<Cell, 2>(t, value);
  }
}

// Every cell of the block from its members.
template <typename Cell, std::uint32_t kLanes>
void add_vectors(const Geometry& g, const BlockItems& items, const Members& members, std::size_t count,
                 Cell* HWY_RESTRICT cells) {
  constexpr std::uint32_t kAhead = 16;  // members
  const std::uint32_t total = count == 0 ? 0 : members.ends[count - 1];
  for (std::size_t c = 0; c < count; ++c) {
    const std::uint32_t begin = members.begin(c);
    const std::uint32_t end = members.ends[c];
    for (std::uint32_t m = begin; m < end; ++m) {
      if (m + kAhead < total)
        fetch_lanes(source_lanes<Cell>(g, items, members.entries[m + kAhead] & ~kNegative), g.grain);
    }
    Cell* HWY_RESTRICT cell = cells + c * g.grain;
    for (std::uint32_t first = 0; first < g.grain; first += kLanes) {
      HWY_ALIGN Cell sum[kLanes] = {};
      for (std::uint32_t m = begin; m < end; ++m) {
        const std::uint32_t entry = members.entries[m];
        const Cell* HWY_RESTRICT value = source_lanes<Cell>(g, items, entry & ~kNegative) + first;
        for (std::uint32_t lane = 0; lane < kLanes; ++lane) sum[lane] += with_sign(value[lane], entry >> 31, 0);
      }
      std::memcpy(cell + first, sum, sizeof sum);
    }
  }
}

template <typename Cell>
bool sketch_typed(const Geometry& g, const BlockItems& items, Cell* cells, Buffer<std::byte>& scratch) {
  const std::size_t count = std::size_t{kSubtables} * g.subtable;
  Carver carver(scratch);
  const std::size_t triples_at = carver.plan<Triple>(items.count);
  const std::size_t values_at = carver.plan<Cell>(g.grain == 1 ? items.count : 0);
  const std::size_t ends_at = carver.plan<std::uint32_t>(g.grain == 1 ? 0 : count);
  const std::size_t entries_at = carver.plan<std::uint32_t>(g.grain == 1 ? 0 : std::size_t{kSubtables} * items.count);
  carver.allocate();
  auto* triples = carver.at<Triple>(triples_at);
  hash_block(g, items, triples);
  if (g.grain == 1) {
    std::memset(static_cast<void*>(cells), 0, count * sizeof(Cell));
    auto* values = carver.at<Cell>(values_at);
    const bool fits = to_cells(g, items.dealt, items.count, reinterpret_cast<std::byte*>(values));
    add_single(items.count, triples, values, cells);
    return fits;
  }
  const Members members{carver.at<std::uint32_t>(ends_at), carver.at<std::uint32_t>(entries_at)};
  find_members(count, items.count, triples, members);
  with_lanes(step_lanes<Cell>(g), [&](auto n) HWY_ATTR { add_vectors<Cell, n()>(g, items, members, count, cells); });
  return true;
}

bool SketchBlock(const Geometry& g, const BlockItems& items, std::byte* cells, Buffer<std::byte>& scratch) {
  return with_counter(g, [&](auto c) HWY_ATTR {
    using Cell = decltype(c);
    return sketch_typed<Cell>(g, items, reinterpret_cast<Cell*>(cells), scratch);
  });
}

}  // namespace peel::detail::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace peel::detail::cpu {

HWY_EXPORT(SketchBlock);

bool sketch_block(const Geometry& g, const BlockItems& items, std::byte* cells, Buffer<std::byte>& scratch) {
  return HWY_DYNAMIC_DISPATCH(SketchBlock)(g, items, cells, scratch);
}

}  // namespace peel::detail::cpu
#endif
