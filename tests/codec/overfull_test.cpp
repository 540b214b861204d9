// Sketches with more items than they were planned for: what peels is exact, what does not is named, keeps its old value
// in the dense view and is left out of the sparse one. CheckedCodec holds all of that against a map and across
// backends; here the losses are made to happen.
#include <gtest/gtest.h>

#include "codec/checked_codec.h"
#include "codec/scenario.h"
#include "property.h"
#include "scale.h"

namespace peel::testing {
namespace {

ExactGradient every(std::uint64_t step, std::uint64_t elements) {
  ExactGradient x;
  for (std::uint64_t e = 0; e < elements; e += step) x.set(e, static_cast<Units>(e % 200) - 300);
  return x;
}

PlanOptions sketch_of(std::uint64_t elements, std::uint64_t cells, std::uint32_t grain = 1) {
  return {.elements = elements,
          .expected_items = 1,
          .codec = Codec::sketch,
          .grain = grain,
          .index = Index::bitmap,
          .scale = kUnitScale,
          .payload_bytes = cells * 4 * grain};
}

TEST(Overfull, ABlockWithMoreItemsThanCellsLosesThemAll) {
  for (const bool estimate : {false, true}) {
    CheckedCodec codec(sketch_of(3000, 900), {});
    const Recovery r = codec.decode(codec.encode(every(3, 3000)), estimate);
    EXPECT_EQ(r.items, 1000u);
    EXPECT_EQ(r.lost, 1000u);
    EXPECT_EQ(r.recovered, 0u);
    EXPECT_EQ(r.rounds, 0u);
  }
}

// Just below the threshold of 1.22 cells an item a part peels: those items are exact, whatever is left in the cells.
TEST(Overfull, WhatPeelsIsExactAndTheRestIsNamed) {
  for (const std::uint32_t grain : {1u, 4u, 32u}) {
    std::uint64_t partly = 0;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      PlanOptions options = sketch_of(6000 * grain, 1140, grain);
      options.seed = seed * 0x9E3779B97F4A7C15u;
      CheckedCodec codec(options, {.threads = 2, .offset = 1});
      const Recovery r = codec.decode(codec.encode(every(6 * grain, 6000 * grain)), seed % 2 == 0);
      EXPECT_EQ(r.items, 1000u);
      partly += r.lost > 0 && r.recovered > 0;
    }
    EXPECT_GE(partly, 18u) << "grain " << grain;  // else this tests nothing
  }
}

TEST(Overfull, OnlyTheFullBlockLoses) {
  // One block gets all of its local ids, the others one group in five.
  PlanOptions options{.elements = 200'000,
                      .expected_items = 40'000,
                      .codec = Codec::sketch,
                      .index = Index::bitmap,
                      .scale = kUnitScale};
  CheckedCodec codec(options, {.threads = 3});
  const detail::Geometry& g = codec.plan().geometry();
  ASSERT_GE(g.blocks, 4u);
  ExactGradient x;
  for (std::uint64_t e = 0; e < options.elements; ++e) {
    if (detail::place_of(g, e).block == 2 || e % 40 < 8) x.set(e, 5);
  }
  const Recovery r = codec.decode(codec.encode(x));
  EXPECT_GT(r.lost, 0u);
  for (const std::uint64_t item : r.lost_items) EXPECT_EQ(detail::place_of(g, item).block, 2u);
}

TEST(Overfull, FarMoreItemsThanExpectedInRandomPlans) {
  check_property(6, static_cast<int>(scaled(300, 50)), [](Draw& draw) {
    Scenario s = draw_scenario(draw, {.rarely_elements = 50'000, .workers = 3});
    s.options.codec = Codec::sketch;
    s.options.payload_bytes = 0;
    if (s.options.cells == CellType::automatic && !is_integer(s.options.type)) s.options.scale = kUnitScale;
    s.options.expected_items = s.union_items / draw.pick<std::uint64_t>({2, 10, 1000});
    CheckedCodec codec(s.options, s.how);
    auto sum = codec.encode(s.workers[0]);
    for (std::size_t w = 1; w < s.workers.size(); ++w) codec.merge(sum, codec.encode(s.workers[w]));
    codec.decode(sum);
    codec.decode(sum, /*estimate=*/true);
  });
}

TEST(Overfull, PackedIsNeverOverfull) {
  CheckedCodec codec({.elements = 5000, .expected_items = 1, .index = Index::bloom}, {});
  EXPECT_EQ(codec.decode(codec.encode(every(1, 5000))).lost, 0u);
}

}  // namespace
}  // namespace peel::testing
