// local id -> cells: a permutation split into three digits. One-to-one where that is promised, evenly spread, with even
// signs.
#include <gtest/gtest.h>

#include <algorithm>
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
