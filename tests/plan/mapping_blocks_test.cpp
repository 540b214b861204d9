// item <-> block and local id: one-to-one, and blocks evenly full whatever the pattern of the support.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "draw.h"
#include "peel/plan.h"
#include "plan/mapping.h"
#include "plan/sizing.h"
#include "scale.h"

namespace peel::detail {
namespace {

using peel::testing::scaled;
using peel::testing::SeededDraw;

Geometry sketch_geometry(std::uint64_t elements, std::uint64_t items, std::uint32_t grain, std::uint64_t seed) {
  return Plan::make({.elements = elements,
                     .expected_items = items,
                     .codec = Codec::sketch,
                     .grain = grain,
                     .index = Index::bitmap,
                     .seed = seed})
      .geometry();
}

TEST(ItemsAndBlocks, AreOneToOne) {
  for (const std::uint32_t grain : {1u, 2u, 4u, 8u, 64u}) {
    for (const std::uint64_t blocks_wanted : {1u, 2u, 3u, 7u, 24u}) {
      const std::uint64_t items = 8192 * blocks_wanted;
      const Geometry g = sketch_geometry(items * 3 * grain + 5, items, grain, 99 + grain);
      ASSERT_EQ(g.blocks, blocks_wanted);
      const std::uint64_t ids = local_ids(g.items, g.blocks, g.group_log2);
      std::vector<bool> taken(g.blocks * ids);
      for (std::uint64_t item = 0; item < g.items; ++item) {
        const Place place = place_of(g, item);
        ASSERT_LT(place.block, g.blocks);
        ASSERT_LT(place.local, ids);
        ASSERT_FALSE(taken[place.block * ids + place.local]) << "item " << item;
        taken[place.block * ids + place.local] = true;
        ASSERT_EQ(item_at(g, place), item);
      }
    }
  }
}

TEST(ItemsAndBlocks, LocalIdsIncreaseWithTheItems) {
  const Geometry g = sketch_geometry(1 << 18, 30'000, 1, 3);
  std::vector<std::int64_t> last(g.blocks, -1);
  for (std::uint64_t item = 0; item < g.items; ++item) {
    const Place place = place_of(g, item);
    ASSERT_GT(place.local, last[place.block]);
    last[place.block] = place.local;
  }
}

TEST(ItemsAndBlocks, HoldPastFourBillionItems) {
  // Also where dividing by the blocks is by a rounded inverse: the last items of the largest arrays.
  for (const std::uint64_t elements : {(std::uint64_t{1} << 33) + 77, std::uint64_t{1} << 43}) {
    for (const std::uint64_t expected : {10ull, 1'000'000ull, 1'000'000'000ull}) {
      const Geometry g = sketch_geometry(elements, expected, 1, 5);
      SeededDraw draw(17);
      for (int i = 0; i < 20'000; ++i) {
        const std::uint64_t item = i < 100 ? g.items - 1 - i : draw.below(g.items);
        const Place place = place_of(g, item);
        ASSERT_LT(place.block, g.blocks);
        ASSERT_EQ(item_at(g, place), item) << expected << " expected of " << elements;
      }
    }
  }
}

// ---- even loads

struct Pattern {
  const char* name;
  // Calls take(item) for the items of the support.
  std::function<void(std::uint64_t items, SeededDraw&, const std::function<void(std::uint64_t)>& take)> draw;
};

const Pattern kPatterns[] = {
    {"uniform",
     [](std::uint64_t items, SeededDraw& draw, const auto& take) {
       for (std::uint64_t i = 0; i < items; ++i) {
         if (draw.below(20) == 0) take(i);
       }
     }},
    {"runs of 64",
     [](std::uint64_t items, SeededDraw& draw, const auto& take) {
       for (std::uint64_t i = draw.below(20 * 64); i + 64 <= items; i += 64 + draw.below(2 * 19 * 64)) {
         for (std::uint64_t k = 0; k < 64; ++k) take(i + k);
       }
     }},
    {"one dense stretch",
     [](std::uint64_t items, SeededDraw&, const auto& take) {
       for (std::uint64_t i = 0; i < items / 20; ++i) take(items / 3 + i);
     }},
    {"stride of 4096",
     [](std::uint64_t items, SeededDraw& draw, const auto& take) {
       // Columns of a matrix: the same 200 places of every 4096.
       const std::uint64_t first = draw.below(4096);
       for (std::uint64_t i = 0; i < items; ++i) {
         if ((i + first) % 4096 < 200) take(i);
       }
     }},
    {"stride of 20",
     [](std::uint64_t items, SeededDraw&, const auto& take) {
       for (std::uint64_t i = 0; i < items; i += 20) take(i);
     }},
};

// The plan's slack covers sqrt(2 ln(blocks / 0.003)) deviations of a load whose variance is a group's items times the
// mean; no pattern may ask for more than that.
TEST(BlockLoads, AreEvenForEveryPattern) {
  const std::uint64_t elements = scaled(std::uint64_t{1} << 22, std::uint64_t{1} << 20);
  for (const Pattern& pattern : kPatterns) {
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      const Geometry g = sketch_geometry(elements, elements / 20, 1, seed * 0x9E3779B97F4A7C15u);
      SeededDraw draw(seed);
      std::vector<std::uint64_t> load(g.blocks);
      std::uint64_t total = 0;
      pattern.draw(g.items, draw, [&](std::uint64_t item) {
        ++load[place_of(g, item).block];
        ++total;
      });
      const double mean = static_cast<double>(total) / g.blocks;
      const double deviation = std::sqrt(mean * (1 << g.group_log2));
      const double fullest = static_cast<double>(*std::max_element(load.begin(), load.end()));
      EXPECT_LE(fullest, mean + 4.5 * deviation) << pattern.name << ", seed " << seed << ", " << g.blocks << " blocks";
    }
  }
}

// A long dense run is spread to within a group or two per block: rotation deals every stripe to every block.
TEST(BlockLoads, OfADenseRunAreNearlyEqual) {
  const Geometry g = sketch_geometry(1 << 20, 1 << 17, 1, 1);
  ASSERT_GT(g.blocks, 8u);
  std::vector<std::uint64_t> load(g.blocks);
  for (std::uint64_t item = 100'003; item < 100'003 + 50'000; ++item) ++load[place_of(g, item).block];
  const auto [least, most] = std::minmax_element(load.begin(), load.end());
  EXPECT_LE(*most - *least, 2u << g.group_log2);
}

}  // namespace
}  // namespace peel::detail
