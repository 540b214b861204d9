// Elements to cells and back, for whole arrays. The arithmetic is codec/values.h; float32 in fixed32 cells, the common
// case, is written in vectors here, since compilers leave it scalar (3 ns an element against 0.4).
#include "codec/cpu/kernels.h"

#include <array>
#include <bit>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/cpu/convert.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace peel::detail::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Doubles = hn::ScalableTag<double>;
using Floats = hn::Rebind<float, Doubles>;
using Fixed = hn::Rebind<std::int32_t, Doubles>;

// Returns how many elements it converted: all whole vectors.
std::size_t to_fixed32(const Scaling& scaling, const float* HWY_RESTRICT from, std::size_t count,
                       std::uint32_t* HWY_RESTRICT to, bool& fits) {
  const Doubles d;
  const Floats df;
  const Fixed di;
  const auto up = hn::Set(d, scaling.up);
  const auto largest = hn::Set(d, scaling.largest);
  auto good = hn::Eq(up, up);
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    const auto scaled = hn::Mul(hn::PromoteTo(d, hn::LoadU(df, from + i)), up);
    const auto inside = hn::Le(hn::Abs(scaled), largest);
    good = hn::And(good, inside);
    const auto fixed = hn::DemoteTo(di, hn::Round(hn::IfThenElseZero(inside, scaled)));
    hn::StoreU(fixed, di, reinterpret_cast<std::int32_t*>(to + i));
  }
  fits = fits && hn::AllTrue(d, good);
  return i;
}

std::size_t from_fixed32(const Scaling& scaling, const std::uint32_t* HWY_RESTRICT from, std::size_t count,
                         float* HWY_RESTRICT to) {
  const Doubles d;
  const Floats df;
  const Fixed di;
  const auto down = hn::Set(d, scaling.down);
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    const auto fixed = hn::LoadU(di, reinterpret_cast<const std::int32_t*>(from + i));
    hn::StoreU(hn::DemoteTo(df, hn::Mul(hn::PromoteTo(d, fixed), down)), df, to + i);
  }
  return i;
}

bool ToCells(const Geometry& g, const std::byte* values, std::size_t count, std::byte* cells) {
  return with_cell(g, [&](auto t, auto c) HWY_ATTR {
    using T = decltype(t);
    using Cell = decltype(c);
    const auto* HWY_RESTRICT from = reinterpret_cast<const T*>(values);
    auto* HWY_RESTRICT to = reinterpret_cast<Cell*>(cells);
    const Scaling scaling(g);
    bool fits = true;
    std::size_t i = 0;
    if constexpr (std::is_same_v<T, float> && std::is_same_v<Cell, std::uint32_t>) {
      i = to_fixed32(scaling, from, count, to, fits);
    }
    for (; i < count; ++i) to[i] = to_cell<Cell>(from[i], scaling, fits);
    return fits;
  });
}

// The cells of the items `own` to their places among all items of a word, with zeros between them. A branch for
// every item of the union took 16 ns an item at 70%, this takes 3 (four workers on two Ice Lake cores).
template <typename Cell>
std::byte* PlaceCellsOf(std::uint64_t own, std::uint64_t all, const std::byte* HWY_RESTRICT cells,
                        std::byte* HWY_RESTRICT slots) {
  const auto count = static_cast<std::size_t>(std::popcount(all));
  std::memset(slots, 0, count * sizeof(Cell));
  for (std::size_t i = 0; own != 0; own &= own - 1, ++i) {
    const std::uint64_t before = (own & (~own + 1)) - 1;
    const auto rank = static_cast<std::size_t>(std::popcount(all & before));
    std::memcpy(slots + rank * sizeof(Cell), cells + i * sizeof(Cell), sizeof(Cell));
  }
  return slots + count * sizeof(Cell);
}

std::byte* PlaceCells(std::size_t cell_bytes, std::uint64_t own, std::uint64_t all, const std::byte* cells,
                      std::byte* slots) {
  switch (cell_bytes) {
    case 1:
      return PlaceCellsOf<std::uint8_t>(own, all, cells, slots);
    case 2:
      return PlaceCellsOf<std::uint16_t>(own, all, cells, slots);
    case 4:
      return PlaceCellsOf<std::uint32_t>(own, all, cells, slots);
    default:
      return PlaceCellsOf<std::uint64_t>(own, all, cells, slots);
  }
}

// Where own and union agree, which is most of the time for one worker or a full overlap, runs of words are one
// conversion.
bool PackWords(const Geometry& g, const std::uint64_t* own, const std::uint64_t* words, std::uint64_t first,
               std::uint64_t end, const std::byte* values, std::byte* slots) {
  const std::size_t cell = g.cells == CellType::native ? size_of(g.type) : g.cells == CellType::fixed64 ? 8 : 4;
  const std::size_t from_bytes = g.grain * size_of(g.type);
  const std::size_t to_bytes = g.grain * cell;
  std::uint64_t agreed = 0;                                                // items not yet converted
  alignas(8) std::array<std::byte, 64 * sizeof(std::uint64_t)> converted;  // the cells of a word
  bool fits = true;
  const auto flush = [&]() HWY_ATTR {
    if (agreed == 0) return;
    fits &= ToCells(g, values, agreed << g.grain_log2, slots);
    values += agreed * from_bytes;
    slots += agreed * to_bytes;
    agreed = 0;
  };
  for (std::uint64_t w = first; w < end; ++w) {
    if (own[w] == words[w]) {
      agreed += static_cast<std::uint64_t>(std::popcount(own[w]));
      continue;
    }
    if (g.grain == 1) {
      flush();
      const auto having = static_cast<std::size_t>(std::popcount(own[w]));
      const std::byte* cells = values;
      if (g.cells != CellType::native) {
        fits &= ToCells(g, values, having, converted.data());
        cells = converted.data();
      }
      values += having * from_bytes;
      slots = PlaceCells(cell, own[w], words[w], cells, slots);
      continue;
    }
    for (std::uint64_t bits = words[w]; bits != 0; bits &= bits - 1) {
      if ((own[w] & bits & -bits) != 0) {
        ++agreed;
        continue;
      }
      flush();
      std::memset(slots, 0, to_bytes);
      slots += to_bytes;
    }
  }
  flush();
  return fits;
}

void FromCells(const Geometry& g, const std::byte* cells, std::size_t count, std::byte* values) {
  with_cell(g, [&](auto t, auto c) HWY_ATTR {
    using T = decltype(t);
    using Cell = decltype(c);
    const auto* HWY_RESTRICT from = reinterpret_cast<const Cell*>(cells);
    auto* HWY_RESTRICT to = reinterpret_cast<T*>(values);
    const Scaling scaling(g);
    std::size_t i = 0;
    if constexpr (std::is_same_v<T, float> && std::is_same_v<Cell, std::uint32_t>) {
      i = from_fixed32(scaling, from, count, to);
    }
    for (; i < count; ++i) to[i] = from_cell<T>(from[i], scaling);
  });
}

}  // namespace peel::detail::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace peel::detail::cpu {

HWY_EXPORT(PackWords);
HWY_EXPORT(ToCells);
HWY_EXPORT(FromCells);

bool pack_words(const Geometry& g, const std::uint64_t* own, const std::uint64_t* words, std::uint64_t first,
                std::uint64_t end, const std::byte* values, std::byte* slots) {
  return HWY_DYNAMIC_DISPATCH(PackWords)(g, own, words, first, end, values, slots);
}

bool to_cells(const Geometry& g, const std::byte* values, std::size_t count, std::byte* cells) {
  return HWY_DYNAMIC_DISPATCH(ToCells)(g, values, count, cells);
}

void from_cells(const Geometry& g, const std::byte* cells, std::size_t count, std::byte* values) {
  HWY_DYNAMIC_DISPATCH(FromCells)(g, cells, count, values);
}

}  // namespace peel::detail::cpu
#endif
