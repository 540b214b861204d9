// One block of a sketch, in cache: peeling it.
//
// codec/reference/sketch.cpp is the specification. What differs here is the bookkeeping: an item is its position in the
// block's list, below 2^16, and a cell's whole state is one word, (sum of those positions << 16) + degree. One integer
// addition enters or removes an item, and a word of degree 1 names its item. The sum may wrap, the degree cannot: a
// block with more items than cells is not tried, and cells are at most 65,535.
//
// Cells of a visit are found a vector at a time and taken in increasing order, without a branch on any degree. A queue
// of candidates would look at fewer words, but pays a misprediction for most items.
//
// With a grain above 1 the words are peeled first and yield a sequence of items; the vectors follow it. An item is its
// lonely cell less that cell's other members, which were taken before, so that vectors are only ever read once written.
#include "codec/cpu/sketch_kernels.h"

#include <bit>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/cpu/peel_block.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "codec/cpu/block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace peel::detail::cpu::HWY_NAMESPACE {

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
  if constexpr (sizeof(AnySlot) <= 8 && hn::MaxLanes(hn::ScalableTag<std::uint32_t>()) >= 4) {
    // Lanes of 32 bits: all are words, or every other one, and then the cells between are masked to zero.
    constexpr std::uint32_t kApart = sizeof(AnySlot) / 4;
    const hn::ScalableTag<std::uint32_t> d;
    const auto lanes = static_cast<std::uint32_t>(hn::Lanes(d)) / kApart;
    const auto order = hn::Iota(d, 0);  // built once: some versions assemble it lane by lane in memory
    const auto is_word = hn::Eq(hn::And(order, hn::Set(d, kApart - 1)), hn::Zero(d));
    const auto degree = hn::IfThenElseZero(is_word, hn::Set(d, 0xFFFFu));
    const auto one = hn::Set(d, 1u);
    const auto step = hn::Set(d, lanes);
    auto numbers = hn::Add(hn::Set(d, first), hn::ShiftRight<kApart - 1>(order));
    for (; i + lanes <= count; i += lanes) {
      const auto v = hn::LoadU(d, reinterpret_cast<const std::uint32_t*>(slots + i));
      const auto m = hn::Eq(hn::And(v, degree), one);
      hn::StoreU(hn::Compress(numbers, m), d, lonely + found);
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

// The vectors of a block while it is peeled: cells as they came, and values of the items taken so far.
template <typename Cell>
struct Vectors {
  const Geometry& g;
  const BlockItems& items;
  const Members& members;
  const Triple* triples;
  const Cell* cells;

  [[nodiscard]] HWY_INLINE Cell* value(std::uint32_t item) const {
    return reinterpret_cast<Cell*>(items.to) + (items.sources[item] << g.grain_log2);
  }

  // Lanes of a cell less its taken members, but for `except`.
  template <std::uint32_t kLanes>
  HWY_INLINE void rest(std::size_t c, std::uint32_t except, std::uint32_t first, Cell* HWY_RESTRICT lanes) const {
    std::memcpy(lanes, cells + c * g.grain + first, kLanes * sizeof(Cell));
    for (std::uint32_t m = members.begin(c); m < members.ends[c]; ++m) {
      const std::uint32_t entry = members.entries[m];
      const std::uint32_t item = entry & ~kNegative;
      if (item == except || (triples[item] & kTaken) == 0) continue;
      const Cell* HWY_RESTRICT other = value(item) + first;
      for (std::uint32_t lane = 0; lane < kLanes; ++lane) lanes[lane] -= with_sign(other[lane], entry >> 31, 0);
    }
  }
};
constexpr std::uint32_t kNobody = ~std::uint32_t{0};

HWY_INLINE std::uint32_t step_cell(Step step, Triple t) { return static_cast<std::uint16_t>(t >> (16 * (step & 3))); }

// Takes the items of all steps, in order: each is what is left in its lonely cell. Marks them taken as it goes.
template <typename Cell, std::uint32_t kLanes>
void follow_steps(const Vectors<Cell>& v, const Step* HWY_RESTRICT steps, std::uint32_t count, Triple* triples) {
  constexpr std::uint32_t kAhead = 8;
  for (std::uint32_t k = 0; k < count; ++k) {
    if (k + kAhead < count) {
      const Step later = steps[k + kAhead];
      const std::uint32_t c = step_cell(later, triples[later >> 2]);
      fetch_lanes(v.cells + std::size_t{c} * v.g.grain, v.g.grain);
      for (std::uint32_t m = v.members.begin(c); m < v.members.ends[c]; ++m) {
        fetch_lanes(v.value(v.members.entries[m] & ~kNegative), v.g.grain);
      }
    }
    const std::uint32_t item = steps[k] >> 2;
    const Triple t = triples[item];
    const std::uint32_t sign = static_cast<std::uint32_t>(t >> (48 + (steps[k] & 3))) & 1;
    Cell* HWY_RESTRICT out = v.value(item);
    for (std::uint32_t first = 0; first < v.g.grain; first += kLanes) {
      HWY_ALIGN Cell lanes[kLanes];
      v.template rest<kLanes>(step_cell(steps[k], t), item, first, lanes);
      for (std::uint32_t lane = 0; lane < kLanes; ++lane) out[first + lane] = with_sign(lanes[lane], sign, 0);
    }
    triples[item] = t | kTaken;
  }
}

// Whether nothing is left in cells whose members were all taken. Cells that an item was taken from are, by definition.
template <typename Cell, std::uint32_t kLanes>
bool vectors_clean(const Vectors<Cell>& v, const WordSlot* slots, const std::uint8_t* sources, std::size_t count) {
  if constexpr (std::is_same_v<Cell, float>) {
    return true;
  } else {
    Cell rest = 0;
    for (std::size_t c = 0; c < count; ++c) {
      if (slots[c].word != 0 || sources[c]) continue;
      for (std::uint32_t first = 0; first < v.g.grain; first += kLanes) {
        HWY_ALIGN Cell lanes[kLanes];
        v.template rest<kLanes>(c, kNobody, first, lanes);
        for (std::uint32_t lane = 0; lane < kLanes; ++lane) rest |= lanes[lane];
      }
    }
    return rest == 0;
  }
}

// What lost items decode to: estimates, or zero.
template <typename Cell>
void fill_lost(const Vectors<Cell>& v, bool estimated) {
  for (std::uint32_t i = 0; i < v.items.count; ++i) {
    if ((v.triples[i] & kTaken) != 0) continue;
    for (std::uint32_t lane = 0; lane < v.g.grain; ++lane) {
      v.value(i)[lane] = !estimated ? Cell{} : estimate<Cell>(v.triples[i], [&](std::uint32_t c) {
        Cell left;
        v.template rest<1>(c, kNobody, lane, &left);
        return left;
      });
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

// Enters the items of a block whose slots know nobody yet.
template <typename AnySlot>
void enter_block(const Geometry& g, const BlockItems& items, Structure<AnySlot>& structure) {
  if (items.count <= std::size_t{kSubtables} * g.subtable) {
    structure.count = items.count;
    enter_items(structure);
  } else {
    mark_cells(structure, items.count);
  }
}

void list_lost(const Geometry& g, const BlockItems& items, const Triple* triples, std::vector<std::uint64_t>* lost) {
  for (std::uint32_t i = 0; i < items.count; ++i) {
    if ((triples[i] & kTaken) == 0) lost->push_back(item_at(g, {items.block, items.locals[i]}));
  }
}

// Grain 1: values leave their slots as the words do.
template <typename Cell>
BlockPeeled peel_single(const Geometry& g, const BlockItems& items, const Cell* cells, bool estimated,
                        Buffer<std::byte>& scratch, std::vector<std::uint64_t>* lost) {
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
  Structure<Slot<Cell>> structure{triples, slots, carver.at<std::uint32_t>(lonely_at), g.subtable, 0};
  enter_block(g, items, structure);

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
    if (lost != nullptr) list_lost(g, items, triples, lost);
  }
  from_cells(g, reinterpret_cast<const std::byte*>(values), items.count, items.dealt);
  return {progress.rounds, is_clean(slots, count), items.count - progress.taken};
}

// Larger grains: the words first, then the vectors in the order that came out.
template <typename Cell>
BlockPeeled peel_vectors(const Geometry& g, const BlockItems& items, const Cell* cells, bool estimated,
                         Buffer<std::byte>& scratch, std::vector<std::uint64_t>* lost) {
  const std::size_t count = std::size_t{kSubtables} * g.subtable;
  Carver carver(scratch);
  const std::size_t triples_at = carver.plan<Triple>(items.count);
  const std::size_t slots_at = carver.plan<WordSlot>(count);
  const std::size_t lonely_at = carver.plan<std::uint32_t>(g.subtable);
  const std::size_t steps_at = carver.plan<Step>(items.count);
  const std::size_t sources_at = carver.plan<std::uint8_t>(count);
  const std::size_t ends_at = carver.plan<std::uint32_t>(count);
  const std::size_t entries_at = carver.plan<std::uint32_t>(std::size_t{kSubtables} * items.count);
  carver.allocate();
  auto* triples = carver.at<Triple>(triples_at);
  auto* slots = carver.at<WordSlot>(slots_at);
  auto* steps = carver.at<Step>(steps_at);
  auto* sources = carver.at<std::uint8_t>(sources_at);
  const Members members{carver.at<std::uint32_t>(ends_at), carver.at<std::uint32_t>(entries_at)};
  hash_block(g, items, triples);
  find_members(count, items.count, triples, members);
  std::memset(slots, 0, count * sizeof(WordSlot));
  std::memset(sources, 0, count);
  Structure<WordSlot> structure{triples, slots, carver.at<std::uint32_t>(lonely_at), g.subtable, 0};
  enter_block(g, items, structure);
  std::uint32_t sequence = 0;
  const Progress progress = peel_structure(structure, [&](auto here, std::uint32_t item, Triple t) HWY_ATTR {
    steps[sequence++] = item << 2 | here();
    sources[cell_at<here()>(t)] = 1;
  });

  const Vectors<Cell> vectors{g, items, members, triples, cells};
  BlockPeeled result{progress.rounds, true, items.count - progress.taken};
  with_lanes(step_lanes<Cell>(g), [&](auto n) HWY_ATTR {
    follow_steps<Cell, n()>(vectors, steps, sequence, triples);
    result.clean = vectors_clean<Cell, n()>(vectors, slots, sources, count);
  });
  if (progress.taken < items.count) {
    fill_lost(vectors, estimated);
    if (lost != nullptr) list_lost(g, items, triples, lost);
  }
  return result;
}

BlockPeeled PeelBlock(const Geometry& g, const BlockItems& items, const std::byte* cells, bool estimated,
                      Buffer<std::byte>& scratch, std::vector<std::uint64_t>* lost) {
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

HWY_EXPORT(PeelBlock);

BlockPeeled peel_block(const Geometry& g, const BlockItems& items, const std::byte* cells, bool estimate,
                       Buffer<std::byte>& scratch, std::vector<std::uint64_t>* lost) {
  return HWY_DYNAMIC_DISPATCH(PeelBlock)(g, items, cells, estimate, scratch, lost);
}

}  // namespace peel::detail::cpu
#endif
