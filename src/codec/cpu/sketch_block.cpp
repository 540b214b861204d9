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
  return with_sign(value, static_cast<std::uint32_t>(t >> 48), kSubtable);
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

// The cells of degree 1 among words[0 .. count), as numbers from `first` on, in increasing order.
std::uint32_t find_lonely(const std::uint32_t* HWY_RESTRICT words, std::uint32_t count, std::uint32_t first,
                          std::uint32_t* HWY_RESTRICT lonely) {
  const hn::ScalableTag<std::uint32_t> d;
  const auto lanes = static_cast<std::uint32_t>(hn::Lanes(d));
  const auto degree = hn::Set(d, 0xFFFFu);
  const auto one = hn::Set(d, 1u);
  std::uint32_t found = 0;
  std::uint32_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto m = hn::Eq(hn::And(hn::LoadU(d, words + i), degree), one);
    hn::StoreU(hn::Compress(hn::Iota(d, first + i), m), d, lonely + found);
    found += static_cast<std::uint32_t>(hn::CountTrue(d, m));
  }
  for (; i < count; ++i) {
    lonely[found] = first + i;
    found += (words[i] & 0xFFFFu) == 1;
  }
  return found;
}

struct Structure {
  const Triple* triples;
  std::uint32_t* words;   // one per cell
  std::uint32_t* lonely;  // room for a subtable, and a vector
  std::uint32_t subtable;
  std::uint32_t count;  // items
};

void enter_items(const Structure& s) {
  std::memset(s.words, 0, std::size_t{kSubtables} * s.subtable * sizeof(std::uint32_t));
  for (std::uint32_t i = 0; i < s.count; ++i) {
    const Triple t = s.triples[i];
    const std::uint32_t entry = (i << 16) + 1;
    s.words[cell_at<0>(t)] += entry;
    s.words[cell_at<1>(t)] += entry;
    s.words[cell_at<2>(t)] += entry;
  }
}

// One visit: take(item, triple) for every item that is alone in a cell of subtable kHere.
template <std::uint32_t kHere, typename Take>
HWY_INLINE std::uint32_t visit_subtable(const Structure& s, Take&& take) {
  constexpr std::uint32_t kA = (kHere + 1) % kSubtables;
  constexpr std::uint32_t kB = (kHere + 2) % kSubtables;
  const std::uint32_t first = kHere * s.subtable;
  const std::uint32_t found = find_lonely(s.words + first, s.subtable, first, s.lonely);
  for (std::uint32_t k = 0; k < found; ++k) {
    const std::uint32_t entry = s.words[s.lonely[k]];
    const std::uint32_t item = entry >> 16;
    const Triple t = s.triples[item];
    s.words[s.lonely[k]] = 0;
    s.words[cell_at<kA>(t)] -= entry;
    s.words[cell_at<kB>(t)] -= entry;
    take(std::integral_constant<std::uint32_t, kHere>{}, item, t);
  }
  return found;
}

struct Progress {
  std::uint32_t rounds;
  std::uint32_t taken;
};

template <typename Take>
HWY_INLINE Progress peel_structure(const Structure& s, Take&& take) {
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

// Cells that no item is left in must be zero.
template <typename Cell>
bool is_clean(const std::uint32_t* HWY_RESTRICT words, const Cell* HWY_RESTRICT cells, std::size_t count,
              std::uint32_t lanes) {
  if constexpr (std::is_same_v<Cell, float>) {
    return true;
  } else {
    Cell rest = 0;
    for (std::size_t c = 0; c < count; ++c) {
      const Cell empty = words[c] == 0 ? ~Cell{0} : Cell{0};
      for (std::uint32_t lane = 0; lane < lanes; ++lane) rest |= cells[c * lanes + lane] & empty;
    }
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

template <typename Cell>
Cell estimate_lane(Triple t, const Cell* cells, std::uint32_t lanes, std::uint32_t lane) {
  return median(signed_at<Cell, 0>(t, cells[std::size_t{cell_at<0>(t)} * lanes + lane]),
                signed_at<Cell, 1>(t, cells[std::size_t{cell_at<1>(t)} * lanes + lane]),
                signed_at<Cell, 2>(t, cells[std::size_t{cell_at<2>(t)} * lanes + lane]));
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

// What a lost item decodes to: its estimate, or zero. `out(item)` is where.
template <typename Cell, typename Out>
void fill_lost(const BlockItems& items, const Triple* triples, const std::uint8_t* taken, std::uint32_t lanes,
               const Cell* cells, bool estimate, Out&& out) {
  for (std::uint32_t i = 0; i < items.count; ++i) {
    if (taken[i]) continue;
    for (std::uint32_t lane = 0; lane < lanes; ++lane) {
      out(i)[lane] = estimate ? estimate_lane(triples[i], cells, lanes, lane) : Cell{};
    }
  }
}

// A block laid out in scratch memory for peeling.
template <typename Cell>
struct Bench {
  Structure structure;
  std::uint8_t* taken;
  Cell* slice;
  Cell* values;  // grain 1
  Step* steps;   // larger grains

  Bench(const Geometry& g, const BlockItems& items, Buffer<std::byte>& scratch) {
    const std::size_t count = std::size_t{kSubtables} * g.subtable;
    Carver carver(scratch);
    const std::size_t triples_at = carver.plan<Triple>(items.count);
    const std::size_t words_at = carver.plan<std::uint32_t>(count);
    const std::size_t lonely_at = carver.plan<std::uint32_t>(g.subtable);
    const std::size_t slice_at = carver.plan<Cell>(count * slice_lanes<Cell>(g));
    const std::size_t taken_at = carver.plan<std::uint8_t>(items.count);
    const std::size_t values_at = carver.plan<Cell>(g.grain == 1 ? items.count : 0);
    const std::size_t steps_at = carver.plan<Step>(g.grain == 1 ? 0 : items.count);
    carver.allocate();
    auto* triples = carver.at<Triple>(triples_at);
    hash_block(g, items, triples);
    structure = {triples, carver.at<std::uint32_t>(words_at), carver.at<std::uint32_t>(lonely_at), g.subtable,
                 items.count <= count ? items.count : 0};
    slice = carver.at<Cell>(slice_at);
    taken = carver.at<std::uint8_t>(taken_at);
    values = carver.at<Cell>(values_at);
    steps = carver.at<Step>(steps_at);
    std::memset(taken, 0, items.count);
    enter_items(structure);
    if (items.count > count) {  // not tried; the words still tell which cells may hold something
      for (std::uint32_t i = 0; i < items.count; ++i) {
        structure.words[cell_at<0>(triples[i])] = structure.words[cell_at<1>(triples[i])] =
            structure.words[cell_at<2>(triples[i])] = 1;
      }
    }
  }
};

template <typename Cell>
Progress peel_single(const Geometry& g, const BlockItems& items, const Cell* cells, bool estimate, Bench<Cell>& b,
                     bool& clean) {
  const std::size_t count = std::size_t{kSubtables} * g.subtable;
  Cell* HWY_RESTRICT slice = b.slice;
  std::memcpy(slice, cells, count * sizeof(Cell));
  const Progress progress = peel_structure(b.structure, [&](auto here, std::uint32_t item, Triple t) HWY_ATTR {
    constexpr std::uint32_t kHere = here();
    const Cell value = signed_at<Cell, kHere>(t, slice[cell_at<kHere>(t)]);
    slice[cell_at<kHere>(t)] = 0;
    slice[cell_at<(kHere + 1) % 3>(t)] -= signed_at<Cell, (kHere + 1) % 3>(t, value);
    slice[cell_at<(kHere + 2) % 3>(t)] -= signed_at<Cell, (kHere + 2) % 3>(t, value);
    b.values[item] = value;
    b.taken[item] = 1;
  });
  clean = is_clean(b.structure.words, slice, count, 1);
  if (progress.taken < items.count) {
    fill_lost(items, b.structure.triples, b.taken, 1, slice, estimate, [&](std::uint32_t i) { return b.values + i; });
  }
  from_cells(g, reinterpret_cast<const std::byte*>(b.values), items.count, items.dealt);
  return progress;
}

template <typename Cell>
Progress peel_vectors(const Geometry& g, const BlockItems& items, const Cell* cells, bool estimate, Bench<Cell>& b,
                      bool& clean) {
  const std::size_t count = std::size_t{kSubtables} * g.subtable;
  const std::uint32_t lanes = slice_lanes<Cell>(g);
  std::uint32_t sequence = 0;
  const Progress progress = peel_structure(b.structure, [&](auto here, std::uint32_t item, Triple) HWY_ATTR {
    b.steps[sequence++] = item << 2 | here();
    b.taken[item] = 1;
  });
  for (std::uint32_t first = 0; first < g.grain; first += lanes) {
    for (std::size_t c = 0; c < count; ++c) {
      std::memcpy(b.slice + c * lanes, cells + c * g.grain + first, lanes * sizeof(Cell));
    }
    with_lanes(lanes, [&](auto n) HWY_ATTR {
      follow_steps<Cell, n()>(g, items, b.structure.triples, b.steps, sequence, first, b.slice);
    });
    clean = clean && is_clean(b.structure.words, b.slice, count, lanes);
    if (progress.taken < items.count) {
      auto* out = reinterpret_cast<Cell*>(items.to) + first;
      fill_lost(items, b.structure.triples, b.taken, lanes, b.slice, estimate,
                [&](std::uint32_t i) { return out + (items.sources[i] << g.grain_log2); });
    }
  }
  return progress;
}

template <typename Cell>
BlockPeeled peel_typed(const Geometry& g, const BlockItems& items, const Cell* cells, bool estimate,
                       Buffer<std::byte>& scratch, std::vector<std::uint64_t>& lost) {
  Bench<Cell> bench(g, items, scratch);
  BlockPeeled result;
  const Progress progress = g.grain == 1 ? peel_single(g, items, cells, estimate, bench, result.clean)
                                         : peel_vectors(g, items, cells, estimate, bench, result.clean);
  result.rounds = progress.rounds;
  for (std::uint32_t i = 0; progress.taken < items.count && i < items.count; ++i) {
    if (!bench.taken[i]) lost.push_back(item_at(g, {items.block, items.locals[i]}));
  }
  return result;
}

BlockPeeled PeelBlock(const Geometry& g, const BlockItems& items, const std::byte* cells, bool estimate,
                      Buffer<std::byte>& scratch, std::vector<std::uint64_t>& lost) {
  return with_counter(g, [&](auto c) HWY_ATTR {
    using Cell = decltype(c);
    return peel_typed<Cell>(g, items, reinterpret_cast<const Cell*>(cells), estimate, scratch, lost);
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
