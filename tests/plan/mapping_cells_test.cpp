// local id -> cells: a permutation split into three digits. One-to-one where that is promised, evenly spread, with even
// signs.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <set>
#include <tuple>
#include <vector>

#include "peel/plan.h"
#include "plan/mapping.h"
#include "plan/sizing.h"
#include "scale.h"

namespace peel::detail {
namespace {

using peel::testing::scaled;

TEST(Permutation, IsOneToOneAtEveryWidth) {
  for (std::uint32_t bits = 4; bits <= scaled(20, 14); ++bits) {
    for (const std::uint32_t key : {0u, 1u, 0xDEADBEEFu, 0xFFFFFFFFu}) {
      std::vector<bool> seen(std::size_t{1} << bits);
      for (std::uint32_t x = 0; x < seen.size(); ++x) {
        const std::uint32_t y = permute(x, bits, key);
        ASSERT_LT(y, seen.size());
        ASSERT_FALSE(seen[y]) << bits << " bits, key " << key;
        seen[y] = true;
      }
    }
  }
}

TEST(Mixing, IsOneToOne) {
  std::set<std::uint64_t> wide;
  std::set<std::uint32_t> narrow;
  for (std::uint64_t x = 0; x < 20'000; ++x) {
    wide.insert(mix64(x * 0x10001));
    narrow.insert(mix32(static_cast<std::uint32_t>(x * 0x10001)));
  }
  EXPECT_EQ(wide.size(), 20'000u);
  EXPECT_EQ(narrow.size(), 20'000u);
}

TEST(Cells, LieInTheirSubtables) {
  for (const std::uint32_t subtable : {1u, 2u, 3u, 10u, 1000u, 21'845u}) {
    const std::uint32_t bits = permutation_bits(16, subtable);
    for (std::uint32_t local = 0; local < 5000; ++local) {
      const Cells cells = cells_of(subtable, bits, 12345, bits == 32 ? local : local & ((1u << bits) - 1));
      for (const std::uint32_t cell : cells.cell) ASSERT_LT(cell, subtable);
      ASSERT_LT(cells.signs, 8u);
    }
  }
}

TEST(Cells, OfTwoItemsAreNeverTheSameThree) {
  for (const std::uint32_t subtable : {3u, 5u, 16u, 40u, 64u, 101u, 1626u, 3840u}) {
    const std::uint32_t bits = permutation_bits(1, subtable);
    ASSERT_GE(std::pow(subtable, 3), std::ldexp(1.0, static_cast<int>(bits)));
    for (const std::uint32_t key : {7u, 0xABCDEF01u}) {
      std::set<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>> seen;
      for (std::uint32_t local = 0; local < (1u << std::min(bits, 17u)); ++local) {
        const Cells cells = cells_of(subtable, bits, key, local);
        ASSERT_TRUE(seen.insert({cells.cell[0], cells.cell[1], cells.cell[2]}).second)
            << "subtable " << subtable << ", local " << local;
      }
    }
  }
}

// Where subtable^3 is more than 2^32 the last digit is moved, by as much as leaves it one-to-one. Items that share two
// cells are neighbours in the permutation, so all of those around a random one are looked at.
TEST(Cells, OfNeighboursInThePermutationAreNeverTheSameThree) {
  const auto triple = [](std::uint32_t subtable, std::uint32_t y) {
    // permute() run backwards for a key of 0: its shifts undo themselves, its factors have inverses.
    std::uint32_t x = y ^ (y >> 16);
    x *= 0x7ED1B41Du;
    x ^= x >> 16;
    x *= 0xA5CB9243u;
    x ^= x >> 16;
    EXPECT_EQ(permute(x, 32, 0), y);
    const Cells cells = cells_of(subtable, 32, 0, x);
    return std::array{cells.cell[0], cells.cell[1], cells.cell[2]};
  };
  std::vector<std::uint32_t> subtables = {1626, 1627, 2000, 2048, 3840, 4096, 16'384, 21'844, 21'845};
  std::uint64_t random = 1;
  const auto draw = [&] { return random = mix64(random + 0x9E3779B97F4A7C15ull); };
  for (std::uint64_t i = 0; i < scaled(300, 30); ++i)
    subtables.push_back(static_cast<std::uint32_t>(1626 + draw() % 20'220));
  for (const std::uint32_t subtable : subtables) {
    const std::uint64_t pairs = std::uint64_t{subtable} * subtable;
    for (std::uint64_t i = 0; i < scaled(30, 6); ++i) {
      // The first and the last pair of cells are where bounds would break.
      const std::uint64_t pair = i == 0 ? 0 : i == 1 ? pairs - 1 : draw() % pairs;
      const std::uint64_t first = ((pair << 32) + pairs - 1) / pairs;
      const std::uint64_t end = (((pair + 1) << 32) + pairs - 1) / pairs;
      std::set<std::uint32_t> seen;
      for (std::uint64_t y = first; y < end; ++y) {
        const auto cells = triple(subtable, static_cast<std::uint32_t>(y));
        ASSERT_EQ(std::uint64_t{cells[0]} * subtable + cells[1], pair);
        ASSERT_LT(cells[2], subtable);
        ASSERT_TRUE(seen.insert(cells[2]).second) << "subtable " << subtable << ", permuted to " << y;
      }
    }
  }
}

// Four items on two cells of each subtable never peel. Random triples make n^4 / c^6 such fours; here as many are
// allowed, and not the ten times as many that three plain digits made. Counted among far more items than a block has.
TEST(Cells, RarelyBlockFourItems) {
  const std::uint32_t subtable = 3840;
  const std::uint32_t items = 1 << 18;
  std::vector<std::vector<std::array<std::uint32_t, 2>>> by_first(subtable);
  std::uint64_t fours = 0;
  const std::uint64_t tables = scaled(3, 1);
  for (std::uint64_t table = 0; table < tables; ++table) {
    for (auto& others : by_first) others.clear();
    const auto key = static_cast<std::uint32_t>(mix64(table));
    for (std::uint32_t i = 0; i < items; ++i) {
      const Cells cells = cells_of(subtable, 32, key, i * 10);
      by_first[cells.cell[0]].push_back({cells.cell[1], cells.cell[2]});
    }
    // Two items with the same first cell, by the cells that they have in the other two subtables.
    std::vector<std::uint64_t> twos;
    for (const auto& others : by_first) {
      for (std::size_t a = 0; a < others.size(); ++a) {
        for (std::size_t b = a + 1; b < others.size(); ++b) {
          const auto [y0, y1] = std::minmax(others[a][0], others[b][0]);
          const auto [z0, z1] = std::minmax(others[a][1], others[b][1]);
          // Two that share the second cell are blocked by any two that share theirs; the same for the third.
          const std::uint64_t y = y0 == y1 ? 0xFFFFFFFF : std::uint64_t{y0} << 16 | y1;
          const std::uint64_t z = z0 == z1 ? 0xFFFFFFFF : std::uint64_t{z0} << 16 | z1;
          twos.push_back(y << 32 | z);
        }
      }
    }
    std::sort(twos.begin(), twos.end());
    for (std::size_t i = 1; i < twos.size(); ++i) fours += twos[i] == twos[i - 1];
  }
  const double random = static_cast<double>(tables) * std::pow(items, 4) / std::pow(subtable, 6);
  EXPECT_LE(static_cast<double>(fours), 2 * random + 6);
}

// Plans of ordinary shapes get the one-to-one mapping; only huge sparse arrays cannot.
TEST(Cells, AreOneToOneInOrdinaryPlans) {
  for (const std::uint64_t elements : {1ull << 16, 1ull << 20, 1ull << 24, 1ull << 27}) {
    for (const std::uint64_t sparsity : {3ull, 10ull, 100ull, 1000ull}) {
      const Plan plan =
          Plan::make({.elements = elements, .expected_items = elements / sparsity, .codec = Codec::sketch});
      const Geometry& g = plan.geometry();
      EXPECT_GE(std::uint64_t{1} << g.permutation_bits, local_ids(g.items, g.blocks, g.group_log2));
      const double triples = std::pow(g.subtable, 3);
      EXPECT_GE(triples, std::ldexp(1.0, static_cast<int>(g.permutation_bits))) << plan.describe();
    }
  }
}

// Consecutive local ids, multiples of 8 and of 4096 are what real supports leave in a block. Counted against the
// variance of a fair throw, each subtable on its own.
TEST(Cells, AreEvenlyFullForEveryPatternOfLocalIds) {
  const std::uint32_t subtable = 1000;
  const std::uint32_t bits = permutation_bits(1 << 20, subtable);
  const std::uint32_t items = 200'000;
  for (const std::uint32_t step : {1u, 5u, 8u, 4096u + 1u}) {
    for (const std::uint32_t key : {11u, 0x12345678u, 0xCAFEF00Du}) {
      std::vector<std::uint32_t> load(3 * subtable);
      for (std::uint32_t i = 0; i < items; ++i) {
        const Cells cells = cells_of(subtable, bits, key, (i * step) & ((1u << bits) - 1));
        for (std::uint32_t j = 0; j < 3; ++j) ++load[j * subtable + cells.cell[j]];
      }
      for (std::uint32_t j = 0; j < 3; ++j) {
        double squares = 0;
        for (std::uint32_t c = 0; c < subtable; ++c) {
          const double off = load[j * subtable + c] - double{items} / subtable;
          squares += off * off / (double{items} / subtable);
        }
        // Chi squared has mean 999 and deviation 45 for fair throws; a permutation may be more even, never less.
        EXPECT_LE(squares, 999 + 6 * 45) << "step " << step << ", key " << key << ", subtable " << j;
      }
    }
  }
}

TEST(Cells, HaveEvenAndUnrelatedSigns) {
  const std::uint32_t bits = 24;
  const int count = 1 << 16;
  for (const std::uint32_t key : {3u, 0x87654321u}) {
    int minus[3] = {}, differ[3] = {}, neighbours[3] = {};
    std::uint32_t last = 0;
    for (int i = 0; i < count; ++i) {
      const std::uint32_t signs = cells_of(1000, bits, key, static_cast<std::uint32_t>(i)).signs;
      for (int j = 0; j < 3; ++j) {
        minus[j] += (signs >> j) & 1;
        differ[j] += ((signs >> j) ^ (signs >> ((j + 1) % 3))) & 1;
        neighbours[j] += ((signs ^ last) >> j) & 1;
      }
      last = signs;
    }
    const double allowed = 5 * std::sqrt(count) / 2;
    for (int j = 0; j < 3; ++j) {
      EXPECT_NEAR(minus[j], count / 2, allowed);
      EXPECT_NEAR(differ[j], count / 2, allowed) << "signs " << j << " and " << (j + 1) % 3;
      EXPECT_NEAR(neighbours[j], count / 2, allowed) << "items next to each other, sign " << j;
    }
  }
}

TEST(Blocks, HaveDifferentKeys) {
  const Geometry g = Plan::make({.elements = 1 << 20, .expected_items = 1 << 17, .codec = Codec::sketch}).geometry();
  std::set<std::uint32_t> keys;
  for (std::uint32_t block = 0; block < g.blocks; ++block) keys.insert(block_key(g, block));
  EXPECT_EQ(keys.size(), g.blocks);
}

TEST(BloomProbes, LieInTheirRowsAndDiffer) {
  const Geometry g = Plan::make({.elements = 1 << 20, .expected_items = 1 << 13, .index = Index::bloom}).geometry();
  std::uint64_t same = 0, all = 0;
  for (std::uint64_t run = 0; run < g.items / kBloomRowItems; ++run) {
    BloomProbes probes(g, run);
    std::vector<std::uint64_t> rows;
    for (std::uint32_t k = 0; k < g.bloom_hashes; ++k) {
      const BloomProbe probe = probes.next();
      ASSERT_LT(probe.row, g.bloom_rows);
      ASSERT_LT(probe.swap, 8u);
      ASSERT_LT(probe.turn, 64u);
      same += static_cast<std::uint64_t>(std::count(rows.begin(), rows.end(), probe.row));
      all += rows.size();
      rows.push_back(probe.row);
    }
  }
  EXPECT_LT(static_cast<double>(same), 2.0 * static_cast<double>(all) / static_cast<double>(g.bloom_rows) + 10);
}

}  // namespace
}  // namespace peel::detail
