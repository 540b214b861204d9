// element <-> item, at every grain and phase, with partial first and last items.
#include <gtest/gtest.h>

#include <vector>

#include "peel/plan.h"
#include "plan/mapping.h"

namespace peel::detail {
namespace {

Geometry geometry(std::uint64_t elements, std::uint32_t grain, std::uint32_t phase) {
  return Plan::make({.elements = elements, .expected_items = 1, .grain = grain, .phase = phase, .index = Index::bitmap})
      .geometry();
}

// The items tile the array: each starts where the one before ended, and every element knows its own.
void expect_tiling(const Geometry& g) {
  std::uint64_t next = 0;
  for (std::uint64_t item = 0; item < g.items; ++item) {
    const std::uint64_t first = first_element(g, item), last = last_element(g, item);
    ASSERT_EQ(first, next) << "item " << item;
    ASSERT_GT(last, first) << "item " << item << " is empty";
    ASSERT_LE(last - first, g.grain);
    const bool inner = item != 0 && item + 1 != g.items;
    if (inner) {
      ASSERT_EQ(last - first, g.grain);
      ASSERT_EQ((first + g.grain - g.phase) % g.grain, 0u) << "whole grains start at the phase";
    }
    ASSERT_LE(first_lane(g, item) + (last - first), g.grain);
    for (const std::uint64_t element : {first, (first + last) / 2, last - 1}) ASSERT_EQ(item_of(g, element), item);
    // Lane and element move together.
    ASSERT_EQ((item << g.grain_log2) + first_lane(g, item), first + g.lead);
    next = last;
  }
  ASSERT_EQ(next, g.elements);
}

TEST(ElementsAndItems, TileTheArrayAtEveryGrainAndPhase) {
  for (std::uint32_t grain = 1; grain <= 1024; grain *= 2) {
    for (std::uint32_t phase = 0; phase < grain; ++phase) {
      for (const std::uint64_t elements : {0ull, 1ull, 2ull, 63ull, 1000ull, 3001ull}) {
        expect_tiling(geometry(elements, grain, phase));
        if (::testing::Test::HasFatalFailure()) {
          FAIL() << elements << " elements, grain " << grain << ", phase " << phase;
        }
      }
    }
  }
}

TEST(ElementsAndItems, ThePhaseIsWhereTheFirstWholeGrainStarts) {
  const Geometry g = geometry(100, 8, 3);
  EXPECT_EQ(g.lead, 5u);
  EXPECT_EQ(last_element(g, 0), 3u);
  EXPECT_EQ(first_element(g, 1), 3u);
  EXPECT_EQ(first_lane(g, 0), 5u);
  EXPECT_EQ(g.items, 14u);  // 3, 12 x 8, 1
  EXPECT_EQ(last_element(g, 13) - first_element(g, 13), 1u);
}

TEST(ElementsAndItems, AnArrayShorterThanItsPhaseIsOneItem) {
  const Geometry g = geometry(3, 1024, 1000);
  EXPECT_EQ(g.items, 1u);
  EXPECT_EQ(first_element(g, 0), 0u);
  EXPECT_EQ(last_element(g, 0), 3u);
  EXPECT_EQ(first_lane(g, 0), 24u);
}

TEST(ElementsAndItems, HoldPastFourBillion) {
  for (const std::uint32_t grain : {1u, 2u, 1024u}) {
    const std::uint64_t elements = (std::uint64_t{1} << 40) + 12'345;
    const Geometry g = geometry(elements, grain, grain / 2);
    for (const std::uint64_t element : {std::uint64_t{1} << 32, (std::uint64_t{1} << 32) - 1, elements - 1}) {
      const std::uint64_t item = item_of(g, element);
      EXPECT_LE(first_element(g, item), element);
      EXPECT_GT(last_element(g, item), element);
    }
    EXPECT_EQ(item_of(g, elements - 1), g.items - 1);
    EXPECT_EQ(last_element(g, g.items - 1), elements);
  }
}

}  // namespace
}  // namespace peel::detail
