// The payload of `sketch`: a Count Sketch in blocks, and its peeling.
//
// Payload: block after block; a block is three subtables of `subtable` cells; a cell is `grain` counters. An item is
// added with a sign to one cell of each subtable (plan/mapping.h).
//
// Peeling, block by block: a cell that only one unrecovered item maps to holds that item's value. In each round the
// subtables are visited in turn; on a visit, every cell that holds one item alone is taken, in increasing order, and
// its item is subtracted from the item's other two cells. An item has exactly one cell in a subtable, so a visit never
// meets it twice. Rounds end when one of them takes nothing. Who peels when depends on the index alone, never on
// values. A block with more items than cells is not tried: all its items are lost.
#include <algorithm>
#include <array>

#include "codec/reference/reference.h"
#include "plan/mapping.h"

namespace peel::detail::reference {

namespace {

struct Member {
  std::uint64_t rank;  // which of the union's items, in order
  std::uint64_t item;
  Cells at;
};

std::vector<std::vector<Member>> deal(const Geometry& g, const std::uint64_t* words) {
  std::vector<std::vector<Member>> blocks(g.blocks);
  std::uint64_t rank = 0;
  for (std::uint64_t item = 0; item < g.items; ++item) {
    if (!test_bit(words, item)) continue;
    const Place place = place_of(g, item);
    blocks[place.block].push_back(
        {rank++, item, cells_of(g.subtable, g.permutation_bits, block_key(g, place.block), place.local)});
  }
  return blocks;
}

// One block: its cells, and what is known of who is in them.
template <typename Cell>
class Block {
 public:
  Block(const Geometry& g, const Cell* cells, const std::vector<Member>& members)
      : g_(g),
        members_(members),
        cells_(cells, cells + std::size_t{kSubtables} * g.subtable * g.grain),
        degree_(std::size_t{kSubtables} * g.subtable),
        sum_(degree_.size()),
        recovered_(members.size()) {
    for (std::size_t m = 0; m < members.size(); ++m) {
      for (std::uint32_t j = 0; j < kSubtables; ++j) enter(m, j, +1);
    }
  }

  // Takes every lonely item, round by round; store(member, lane, cell value) gets what comes out.
  template <typename Store>
  std::uint32_t peel(Store&& store) {
    std::uint32_t rounds = 0;
    if (members_.size() > degree_.size()) return rounds;
    for (bool progress = true; progress;) {
      progress = false;
      for (std::uint32_t j = 0; j < kSubtables; ++j) progress |= visit(j, store);
      rounds += progress;
    }
    return rounds;
  }

  [[nodiscard]] bool recovered(std::size_t m) const { return recovered_[m]; }

  // Cells that no unrecovered item maps to must be zero now.
  [[nodiscard]] bool clean() const {
    for (std::size_t c = 0; c < degree_.size(); ++c) {
      for (std::uint32_t lane = 0; degree_[c] == 0 && lane < g_.grain; ++lane) {
        if (cells_[c * g_.grain + lane] != Cell{}) return false;
      }
    }
    return true;
  }

  // The median of an item's three cells: unbiased, since the signs of whatever else is in them are even.
  [[nodiscard]] Cell estimate(std::size_t m, std::uint32_t lane) const {
    std::array<Cell, kSubtables> seen;
    for (std::uint32_t j = 0; j < kSubtables; ++j) {
      seen[j] = with_sign(cells_[cell(m, j) * g_.grain + lane], members_[m].at.signs, j);
    }
    std::sort(seen.begin(), seen.end(), [](Cell a, Cell b) {
      if constexpr (std::is_integral_v<Cell>) {
        return static_cast<std::make_signed_t<Cell>>(a) < static_cast<std::make_signed_t<Cell>>(b);
      } else {
        return a < b;
      }
    });
    return seen[1];
  }

 private:
  [[nodiscard]] std::size_t cell(std::size_t m, std::uint32_t j) const {
    return std::size_t{j} * g_.subtable + members_[m].at.cell[j];
  }

  void enter(std::size_t m, std::uint32_t j, int direction) {
    degree_[cell(m, j)] += direction;
    sum_[cell(m, j)] += direction * static_cast<std::int64_t>(m);
  }

  template <typename Store>
  bool visit(std::uint32_t j, Store& store) {
    std::vector<std::size_t> lonely;
    for (std::size_t c = std::size_t{j} * g_.subtable; c < (std::size_t{j} + 1) * g_.subtable; ++c) {
      if (degree_[c] == 1) lonely.push_back(c);
    }
    for (const std::size_t c : lonely) take(static_cast<std::size_t>(sum_[c]), j, store);
    return !lonely.empty();
  }

  template <typename Store>
  void take(std::size_t m, std::uint32_t j, Store& store) {
    const std::uint32_t signs = members_[m].at.signs;
    for (std::uint32_t lane = 0; lane < g_.grain; ++lane) {
      const Cell value = with_sign(cells_[cell(m, j) * g_.grain + lane], signs, j);
      for (std::uint32_t other = 0; other < kSubtables; ++other) {
        cells_[cell(m, other) * g_.grain + lane] -= with_sign(value, signs, other);
      }
      store(m, lane, value);
    }
    for (std::uint32_t other = 0; other < kSubtables; ++other) enter(m, other, -1);
    recovered_[m] = true;
  }

  const Geometry& g_;
  const std::vector<Member>& members_;
  std::vector<Cell> cells_;
  std::vector<std::int32_t> degree_;  // unrecovered items in a cell
  std::vector<std::int64_t> sum_;     // of their numbers: the number itself where there is one
  std::vector<bool> recovered_;
};

}  // namespace

bool sketch(const Geometry& g, const SupportData& own, std::byte* payload) {
  return with_sketch_cell(g, [&](auto t, auto c) {
    using T = decltype(t);
    using Cell = decltype(c);
    const Scaling scaling(g);
    bool fits = true;
    auto* cells = reinterpret_cast<Cell*>(payload);
    std::fill_n(cells, std::size_t{g.blocks} * kSubtables * g.subtable * g.grain, Cell{});
    ValueReader values(g, own);
    for (std::uint64_t item = 0; item < g.items; ++item) {
      if (!test_bit(own.words.data(), item)) continue;
      const T* mine = values.next<T>();
      const Place place = place_of(g, item);
      const Cells at = cells_of(g.subtable, g.permutation_bits, block_key(g, place.block), place.local);
      for (std::uint32_t j = 0; j < kSubtables; ++j) {
        const std::size_t cell = (std::size_t{place.block} * kSubtables + j) * g.subtable + at.cell[j];
        for (std::uint32_t lane = 0; lane < g.grain; ++lane) {
          cells[cell * g.grain + lane] += with_sign(to_cell<Cell>(mine[lane], scaling, fits), at.signs, j);
        }
      }
    }
    return fits;
  });
}

Peeled peel(const Geometry& g, const std::uint64_t* words, const std::byte* payload, const PeelOptions& options,
            std::byte* values) {
  return with_sketch_cell(g, [&](auto t, auto c) {
    using T = decltype(t);
    using Cell = decltype(c);
    const Scaling scaling(g);
    auto* elements = reinterpret_cast<T*>(values);
    const auto* cells = reinterpret_cast<const Cell*>(payload);
    const std::size_t block_cells = std::size_t{kSubtables} * g.subtable * g.grain;
    Peeled peeled;
    const auto blocks = deal(g, words);
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      const std::vector<Member>& members = blocks[b];
      Block<Cell> block(g, cells + b * block_cells, members);
      const auto rounds = block.peel([&](std::size_t m, std::uint32_t lane, Cell value) {
        elements[members[m].rank * g.grain + lane] = from_cell<T>(value, scaling);
      });
      peeled.rounds = std::max(peeled.rounds, rounds);
      peeled.clean = peeled.clean && (std::is_same_v<Cell, float> || block.clean());
      for (std::size_t m = 0; m < members.size(); ++m) {
        if (block.recovered(m)) continue;
        ++peeled.lost;
        if (options.list_lost) peeled.lost_items.push_back(members[m].item);
        for (std::uint32_t lane = 0; lane < g.grain; ++lane) {
          elements[members[m].rank * g.grain + lane] =
              options.estimate ? from_cell<T>(block.estimate(m, lane), scaling) : T{};
        }
      }
    }
    std::sort(peeled.lost_items.begin(), peeled.lost_items.end());
    return peeled;
  });
}

}  // namespace peel::detail::reference
