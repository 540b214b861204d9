// One block of a sketch, in cache: adding items to it, and peeling it.
//
// codec/reference/sketch.cpp is the specification. What differs here is the bookkeeping: an item is its position in the
// block's list, below 2^16, and a cell's whole state is one word, (sum of those positions << 16) + degree. One integer
// addition enters or removes an item, and a word of degree 1 names its item. The sum may wrap, the degree cannot: a
// block with more items than cells is not tried, and cells are at most 65,535.
//
// Cells of a visit are found 16 at a time and taken in increasing order, without a branch on any degree. A queue of
// candidates would look at fewer words, but pays a misprediction for most items.
//
// With a grain above 1 the words are peeled first and yield a sequence of items; the vectors of values then follow that
// sequence, in slices of at most a cache line, so that the cells of a slice stay in L2.
#include "codec/cpu/sketch_kernels.h"

#include <algorithm>
#include <bit>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/cpu/sketch_block.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/cache_control.h>

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

void hash_block(const Geometry& g, const BlockItems& items, Triple* HWY_RESTRICT triples) {
  const std::uint32_t key = block_key(g, items.block);
  const std::uint32_t subtable = g.subtable;
  const std::uint32_t bits = g.permutation_bits;
  const std::uint32_t* HWY_RESTRICT locals = items.locals;
  for (std::uint32_t i = 0; i < items.count; ++i) {
    const Cells at = cells_of(subtable, bits, key, locals[i]);
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

// Lanes of a slice: a cache line of cells, or the whole grain if that is less.
template <typename Cell>
HWY_INLINE std::uint32_t slice_lanes(const Geometry& g) {
  return std::min<std::uint32_t>(g.grain, 64 / sizeof(Cell));
}

template <typename Cell>
HWY_INLINE const Cell* source_lanes(const Geometry& g, const BlockItems& items, std::uint32_t i) {
  const std::uint64_t source = items.sources[i];
  const std::uint64_t rank = source & ((std::uint64_t{1} << 48) - 1);
  return reinterpret_cast<const Cell*>(items.from[source >> 48]) + (rank << g.grain_log2);
}

// ---- adding

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

template <typename Cell, std::uint32_t kSubtable>
HWY_INLINE void add_lanes(Triple t, const Cell* HWY_RESTRICT value, std::uint32_t lanes, Cell* HWY_RESTRICT cells) {
  Cell* HWY_RESTRICT cell = cells + std::size_t{cell_at<kSubtable>(t)} * lanes;
  for (std::uint32_t lane = 0; lane < lanes; ++lane) cell[lane] += signed_at<Cell, kSubtable>(t, value[lane]);
}

// One slice of all items: lanes [first, first + kLanes) of every item.
template <typename Cell, std::uint32_t kLanes>
void add_slice(const Geometry& g, const BlockItems& items, const Triple* HWY_RESTRICT triples, std::uint32_t first,
               Cell* HWY_RESTRICT cells) {
  constexpr std::uint32_t kAhead = 8;
  for (std::uint32_t i = 0; i < items.count; ++i) {
    if (i + kAhead < items.count) hwy::Prefetch(source_lanes<Cell>(g, items, i + kAhead) + first);
    const Cell* HWY_RESTRICT value = source_lanes<Cell>(g, items, i) + first;
    add_lanes<Cell, 0>(triples[i], value, kLanes, cells);
    add_lanes<Cell, 1>(triples[i], value, kLanes, cells);
    add_lanes<Cell, 2>(triples[i], value, kLanes, cells);
  }
}

// visit(std::integral_constant<lanes>) for a power of two from 2 to 16.
template <typename Visitor>
HWY_INLINE decltype(auto) with_lanes(std::uint32_t lanes, Visitor&& visit) {
  switch (lanes) {
    case 2: return visit(std::integral_constant<std::uint32_t, 2>{});
    case 4: return visit(std::integral_constant<std::uint32_t, 4>{});
    case 8: return visit(std::integral_constant<std::uint32_t, 8>{});
    default: return visit(std::integral_constant<std::uint32_t, 16>{});
  }
}

template <typename Cell>
bool sketch_typed(const Geometry& g, const BlockItems& items, Cell* cells, Buffer<std::byte>& scratch) {
  const std::size_t count = std::size_t{kSubtables} * g.subtable;
  const std::uint32_t lanes = slice_lanes<Cell>(g);
  Carver carver(scratch);
  const std::size_t triples_at = carver.plan<Triple>(items.count);
  const std::size_t values_at = carver.plan<Cell>(g.grain == 1 ? items.count : 0);
  const std::size_t slice_at = carver.plan<Cell>(lanes == g.grain ? 0 : count * lanes);
  carver.allocate();
  auto* triples = carver.at<Triple>(triples_at);
  hash_block(g, items, triples);
  if (g.grain == 1) {
    auto* values = carver.at<Cell>(values_at);
    const bool fits = to_cells(g, items.dealt, items.count, reinterpret_cast<std::byte*>(values));
    std::memset(static_cast<void*>(cells), 0, count * sizeof(Cell));
    add_single(items.count, triples, values, cells);
    return fits;
  }
  Cell* slice = lanes == g.grain ? cells : carver.at<Cell>(slice_at);
  for (std::uint32_t first = 0; first < g.grain; first += lanes) {
    std::memset(static_cast<void*>(slice), 0, count * lanes * sizeof(Cell));
    with_lanes(lanes, [&](auto n) HWY_ATTR { add_slice<Cell, n()>(g, items, triples, first, slice); });
    for (std::size_t c = 0; lanes != g.grain && c < count; ++c) {
      std::memcpy(cells + c * g.grain + first, slice + c * lanes, lanes * sizeof(Cell));
    }
  }
  return true;
}

// visit(Cell{}) for a sketch's cells.
template <typename Visitor>
HWY_INLINE decltype(auto) with_counter(const Geometry& g, Visitor&& visit) {
  switch (g.cells) {
    case CellType::fixed64: return visit(std::uint64_t{});
    case CellType::float32: return visit(float{});
    default: return visit(std::uint32_t{});
  }
}

bool SketchBlock(const Geometry& g, const BlockItems& items, std::byte* cells, Buffer<std::byte>& scratch) {
  return with_counter(g, [&](auto c) HWY_ATTR {
    using Cell = decltype(c);
    return sketch_typed<Cell>(g, items, reinterpret_cast<Cell*>(cells), scratch);
  });
}

// ---- peeling

// What a cell knows: with grain 1 its value lies beside its word, so that one line holds both; larger grains keep their
// values elsewhere and peel the words alone.
template <typename Cell>
struct Slot {
  std::conditional_t<sizeof(Cell) == 8, std::uint64_t, std::uint32_t> word;
  Cell cell;
};
struct WordSlot {
  std::uint32_t word;
};

// The slots of degree 1 among slots[0 .. count), as numbers from `first` on, in increasing order.
template <typename AnySlot>
std::uint32_t find_lonely(const AnySlot* HWY_RESTRICT slots, std::uint32_t count, std::uint32_t first,
                          std::uint32_t* HWY_RESTRICT lonely) {
  std::uint32_t found = 0;
  std::uint32_t i = 0;
  if constexpr (sizeof(AnySlot) <= 8) {
    using Lane = std::conditional_t<sizeof(AnySlot) == 4, std::uint32_t, std::uint64_t>;
    const hn::ScalableTag<Lane> d;
    const hn::Rebind<std::uint32_t, decltype(d)> dn;
    const auto lanes = static_cast<std::uint32_t>(hn::Lanes(d));
    const auto degree = hn::Set(d, Lane{0xFFFF});
    const auto one = hn::Set(d, Lane{1});
    const auto step = hn::Set(dn, lanes);
    auto numbers = hn::Iota(dn, first);  // built once: some versions assemble it lane by lane in memory
    for (; i + lanes <= count; i += lanes) {
      const auto v = hn::LoadU(d, reinterpret_cast<const Lane*>(slots + i));
      const auto m = hn::Eq(hn::And(v, degree), one);
      std::uint8_t bits[8] = {};
      hn::StoreMaskBits(d, m, bits);
      hn::StoreU(hn::Compress(numbers, hn::LoadMaskBits(dn, bits)), dn, lonely + found);
      found += static_cast<std::uint32_t>(hn::CountTrue(d, m));
      numbers = hn::Add(numbers, step);
    }
  }
  for (; i < count; ++i) {
    lonely[found] = first + i;
    found += (slots[i].word & 0xFFFFu) == 1;
  }
  return found;
}

constexpr Triple kTaken = Triple{1} << 63;

template <typename AnySlot>
struct Structure {
  Triple* triples;        // of items not taken; of taken ones, kTaken and whatever the taker put there
  AnySlot* slots;         // one per cell
  std::uint32_t* lonely;  // room for a subtable, and a vector
  std::uint32_t subtable;
  std::uint32_t count;  // items
};

template <typename AnySlot>
void enter_items(const Structure<AnySlot>& s) {
  for (std::uint32_t i = 0; i < s.count; ++i) {
    const Triple t = s.triples[i];
    const std::uint32_t entry = (i << 16) + 1;
    s.slots[cell_at<0>(t)].word += entry;
    s.slots[cell_at<1>(t)].word += entry;
    s.slots[cell_at<2>(t)].word += entry;
  }
}

// One visit: take(item, triple) for every item that is alone in a cell of subtable kHere.
template <std::uint32_t kHere, typename AnySlot, typename Take>
HWY_INLINE std::uint32_t visit_subtable(const Structure<AnySlot>& s, Take&& take) {
  constexpr std::uint32_t kA = (kHere + 1) % kSubtables;
  constexpr std::uint32_t kB = (kHere + 2) % kSubtables;
  const std::uint32_t first = kHere * s.subtable;
  const std::uint32_t found = find_lonely(s.slots + first, s.subtable, first, s.lonely);
  for (std::uint32_t k = 0; k < found; ++k) {
    const auto entry = static_cast<std::uint32_t>(s.slots[s.lonely[k]].word);
    const std::uint32_t item = entry >> 16;
    const Triple t = s.triples[item];
    s.slots[s.lonely[k]].word = 0;
    s.slots[cell_at<kA>(t)].word -= entry;
    s.slots[cell_at<kB>(t)].word -= entry;
    take(std::integral_constant<std::uint32_t, kHere>{}, item, t);
  }
  return found;
}

struct Progress {
  std::uint32_t rounds;
  std::uint32_t taken;
};

template <typename AnySlot, typename Take>
HWY_INLINE Progress peel_structure(const Structure<AnySlot>& s, Take&& take) {
  Progress progress{0, 0};
  while (progress.taken < s.count) {
    std::uint32_t found = visit_subtable<0>(s, take);
    found += visit_subtable<1>(s, take);
    found += visit_subtable<2>(s, take);
    if (found == 0) break;
    ++progress.rounds;
    progress.taken += found;
  }
  return progress;
}

// Cells that no item is left in must be zero; float cells never quite are.
template <typename Cell>
bool is_clean(const WordSlot* HWY_RESTRICT slots, const Cell* HWY_RESTRICT cells, std::size_t count,
              std::uint32_t lanes) {
  if constexpr (std::is_same_v<Cell, float>) {
    return true;
  } else {
    Cell rest = 0;
    for (std::size_t c = 0; c < count; ++c) {
      const Cell empty = slots[c].word == 0 ? ~Cell{0} : Cell{0};
      for (std::uint32_t lane = 0; lane < lanes; ++lane) rest |= cells[c * lanes + lane] & empty;
    }
    return rest == 0;
  }
}
template <typename Cell>
bool is_clean(const Slot<Cell>* HWY_RESTRICT slots, std::size_t count) {
  if constexpr (std::is_same_v<Cell, float>) {
    return true;
  } else {
    Cell rest = 0;
    for (std::size_t c = 0; c < count; ++c) rest |= slots[c].word == 0 ? slots[c].cell : Cell{0};
    return rest == 0;
  }
}

template <typename Cell>
Cell median(Cell a, Cell b, Cell c) {
  using Ordered = std::conditional_t<std::is_same_v<Cell, float>, float,
                                     std::conditional_t<sizeof(Cell) == 4, std::int32_t, std::int64_t>>;
  const auto x = static_cast<Ordered>(a), y = static_cast<Ordered>(b), z = static_cast<Ordered>(c);
  return static_cast<Cell>(std::max(std::min(x, y), std::min(std::max(x, y), z)));
}

// The median of an item's three cells; cell(c) reads one.
template <typename Cell, typename Read>
Cell estimate(Triple t, Read&& cell) {
  return median<Cell>(signed_at<Cell, 0>(t, cell(cell_at<0>(t))), signed_at<Cell, 1>(t, cell(cell_at<1>(t))),
                      signed_at<Cell, 2>(t, cell(cell_at<2>(t))));
}

// A taken item: subtable it was alone in, and its number.
using Step = std::uint32_t;

// Follows the steps for one slice: each item's lanes leave its cells.
template <typename Cell, std::uint32_t kLanes>
void follow_steps(const Geometry& g, const BlockItems& items, const Triple* HWY_RESTRICT triples,
                  const Step* HWY_RESTRICT steps, std::uint32_t count, std::uint32_t first, Cell* HWY_RESTRICT cells) {
  auto* out = reinterpret_cast<Cell*>(items.to) + first;
  for (std::uint32_t k = 0; k < count; ++k) {
    const std::uint32_t item = steps[k] >> 2;
    const Triple t = triples[item];
    Cell* HWY_RESTRICT value = out + (items.sources[item] << g.grain_log2);
    const auto leave = [&](auto here) HWY_ATTR {
      constexpr std::uint32_t kHere = here();
      Cell* HWY_RESTRICT cell = cells + std::size_t{cell_at<kHere>(t)} * kLanes;
      Cell* HWY_RESTRICT a = cells + std::size_t{cell_at<(kHere + 1) % 3>(t)} * kLanes;
      Cell* HWY_RESTRICT b = cells + std::size_t{cell_at<(kHere + 2) % 3>(t)} * kLanes;
      for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
        value[lane] = signed_at<Cell, kHere>(t, cell[lane]);
        a[lane] -= signed_at<Cell, (kHere + 1) % 3>(t, value[lane]);
        b[lane] -= signed_at<Cell, (kHere + 2) % 3>(t, value[lane]);
        cell[lane] = 0;
      }
    };
    switch (steps[k] & 3) {
      case 0: leave(std::integral_constant<std::uint32_t, 0>{}); break;
      case 1: leave(std::integral_constant<std::uint32_t, 1>{}); break;
      default: leave(std::integral_constant<std::uint32_t, 2>{}); break;
    }
  }
}

// A block with more items than cells is not tried; its words still tell which cells may hold something.
template <typename AnySlot>
void mark_cells(const Structure<AnySlot>& s, std::uint32_t items) {
  for (std::uint32_t i = 0; i < items; ++i) {
    const Triple t = s.triples[i];
    s.slots[cell_at<0>(t)].word = s.slots[cell_at<1>(t)].word = s.slots[cell_at<2>(t)].word = 1;
  }
}

template <typename AnySlot>
Structure<AnySlot> enter_block(const Geometry& g, const BlockItems& items, Triple* triples, AnySlot* slots,
                               std::uint32_t* lonely) {
  const bool tried = items.count <= std::size_t{kSubtables} * g.subtable;
  const Structure<AnySlot> structure{triples, slots, lonely, g.subtable, tried ? items.count : 0};
  if (tried) {
    enter_items(structure);
  } else {
    mark_cells(structure, items.count);
  }
  return structure;
}

void list_lost(const Geometry& g, const BlockItems& items, const Triple* triples, std::vector<std::uint64_t>& lost) {
  for (std::uint32_t i = 0; i < items.count; ++i) {
    if ((triples[i] & kTaken) == 0) lost.push_back(item_at(g, {items.block, items.locals[i]}));
  }
}

// Grain 1: values leave their slots as the words do.
template <typename Cell>
BlockPeeled peel_single(const Geometry& g, const BlockItems& items, const Cell* cells, bool estimated,
                        Buffer<std::byte>& scratch, std::vector<std::uint64_t>& lost) {
  const std::size_t count = std::size_t{kSubtables} * g.subtable;
  Carver carver(scratch);
  const std::size_t triples_at = carver.plan<Triple>(items.count);
  const std::size_t slots_at = carver.plan<Slot<Cell>>(count);
  const std::size_t lonely_at = carver.plan<std::uint32_t>(g.subtable);
  const std::size_t values_at = carver.plan<Cell>(items.count);
  carver.allocate();
  auto* triples = carver.at<Triple>(triples_at);
  auto* slots = carver.at<Slot<Cell>>(slots_at);
  auto* values = carver.at<Cell>(values_at);
  hash_block(g, items, triples);
  for (std::size_t c = 0; c < count; ++c) slots[c] = {0, cells[c]};
  const auto structure = enter_block(g, items, triples, slots, carver.at<std::uint32_t>(lonely_at));

  const Progress progress = peel_structure(structure, [&](auto here, std::uint32_t item, Triple t) HWY_ATTR {
    constexpr std::uint32_t kHere = here();
    const Cell value = signed_at<Cell, kHere>(t, slots[cell_at<kHere>(t)].cell);
    slots[cell_at<kHere>(t)].cell = 0;
    slots[cell_at<(kHere + 1) % 3>(t)].cell -= signed_at<Cell, (kHere + 1) % 3>(t, value);
    slots[cell_at<(kHere + 2) % 3>(t)].cell -= signed_at<Cell, (kHere + 2) % 3>(t, value);
    if constexpr (sizeof(Cell) == 4) {
      triples[item] = kTaken | std::bit_cast<std::uint32_t>(value);  // the triple's line is at hand
    } else {
      triples[item] = kTaken;
      values[item] = value;
    }
  });
  if constexpr (sizeof(Cell) == 4) {
    for (std::uint32_t i = 0; i < items.count; ++i) {
      values[i] = std::bit_cast<Cell>(static_cast<std::uint32_t>(triples[i]));
    }
  }
  if (progress.taken < items.count) {
    for (std::uint32_t i = 0; i < items.count; ++i) {
      if ((triples[i] & kTaken) != 0) continue;
      values[i] = estimated ? estimate<Cell>(triples[i], [&](std::uint32_t c) { return slots[c].cell; }) : Cell{};
    }
    list_lost(g, items, triples, lost);
  }
  from_cells(g, reinterpret_cast<const std::byte*>(values), items.count, items.dealt);
  return {progress.rounds, is_clean(slots, count)};
}

// Larger grains: the words first, then the values in slices.
template <typename Cell>
BlockPeeled peel_vectors(const Geometry& g, const BlockItems& items, const Cell* cells, bool estimated,
                         Buffer<std::byte>& scratch, std::vector<std::uint64_t>& lost) {
  const std::size_t count = std::size_t{kSubtables} * g.subtable;
  const std::uint32_t lanes = slice_lanes<Cell>(g);
  Carver carver(scratch);
  const std::size_t triples_at = carver.plan<Triple>(items.count);
  const std::size_t slots_at = carver.plan<WordSlot>(count);
  const std::size_t lonely_at = carver.plan<std::uint32_t>(g.subtable);
  const std::size_t steps_at = carver.plan<Step>(items.count);
  const std::size_t slice_at = carver.plan<Cell>(count * lanes);
  carver.allocate();
  auto* triples = carver.at<Triple>(triples_at);
  auto* slots = carver.at<WordSlot>(slots_at);
  auto* steps = carver.at<Step>(steps_at);
  auto* slice = carver.at<Cell>(slice_at);
  hash_block(g, items, triples);
  std::memset(slots, 0, count * sizeof(WordSlot));
  const auto structure = enter_block(g, items, triples, slots, carver.at<std::uint32_t>(lonely_at));
  std::uint32_t sequence = 0;
  const Progress progress = peel_structure(structure, [&](auto here, std::uint32_t item, Triple t) HWY_ATTR {
    steps[sequence++] = item << 2 | here();
    triples[item] = t | kTaken;
  });

  BlockPeeled result{progress.rounds, true};
  for (std::uint32_t first = 0; first < g.grain; first += lanes) {
    for (std::size_t c = 0; c < count; ++c) {
      std::memcpy(slice + c * lanes, cells + c * g.grain + first, lanes * sizeof(Cell));
    }
    with_lanes(lanes, [&](auto n) HWY_ATTR {
      follow_steps<Cell, n()>(g, items, triples, steps, sequence, first, slice);
    });
    result.clean = result.clean && is_clean(slots, slice, count, lanes);
    auto* out = reinterpret_cast<Cell*>(items.to) + first;
    for (std::uint32_t i = 0; progress.taken < items.count && i < items.count; ++i) {
      if ((triples[i] & kTaken) != 0) continue;
      for (std::uint32_t lane = 0; lane < lanes; ++lane) {
        out[(items.sources[i] << g.grain_log2) + lane] =
            estimated ? estimate<Cell>(triples[i], [&](std::uint32_t c) { return slice[std::size_t{c} * lanes + lane]; })
                      : Cell{};
      }
    }
  }
  if (progress.taken < items.count) list_lost(g, items, triples, lost);
  return result;
}

BlockPeeled PeelBlock(const Geometry& g, const BlockItems& items, const std::byte* cells, bool estimated,
                      Buffer<std::byte>& scratch, std::vector<std::uint64_t>& lost) {
  return with_counter(g, [&](auto c) HWY_ATTR {
    using Cell = decltype(c);
    const auto* table = reinterpret_cast<const Cell*>(cells);
    return g.grain == 1 ? peel_single(g, items, table, estimated, scratch, lost)
                        : peel_vectors(g, items, table, estimated, scratch, lost);
  });
}

}  // namespace peel::detail::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace peel::detail::cpu {

HWY_EXPORT(SketchBlock);
HWY_EXPORT(PeelBlock);

bool sketch_block(const Geometry& g, const BlockItems& items, std::byte* cells, Buffer<std::byte>& scratch) {
  return HWY_DYNAMIC_DISPATCH(SketchBlock)(g, items, cells, scratch);
}

BlockPeeled peel_block(const Geometry& g, const BlockItems& items, const std::byte* cells, bool estimate,
                       Buffer<std::byte>& scratch, std::vector<std::uint64_t>& lost) {
  return HWY_DYNAMIC_DISPATCH(PeelBlock)(g, items, cells, estimate, scratch, lost);
}

}  // namespace peel::detail::cpu
#endif
