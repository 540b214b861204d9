// Owner maps: what is dealt to the owners and collected again is what it was, and nobody owns much more than another.
#include "items/owner_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "items/drawn_items.h"
#include "property.h"
#include "scale.h"

namespace peel::detail {
namespace {

using testing::draw_items;
using testing::DrawnItems;
using testing::SeededDraw;

struct Dealt {
  std::vector<PositionBuffers> words;
  std::vector<std::uint64_t> sizes;
  std::vector<Buffer<std::byte>> values;

  Dealt(const OwnerMap& owners, const DrawnItems& drawn, std::size_t item_bytes)
      : words(owners.workers()), sizes(owners.workers()), values(owners.workers()) {
    owners.deal_words(drawn.words, words, sizes);
    std::vector<std::byte*> targets;
    for (unsigned w = 0; w < owners.workers(); ++w) {
      values[w].resize(sizes[w] * item_bytes);
      targets.push_back(values[w].data());
    }
    owners.deal_values(drawn.words, drawn.values, item_bytes, targets);
  }
};

TEST(OwnerMap, WhatIsDealtIsCollected) {
  testing::check_property(91, static_cast<int>(testing::scaled(1500, 200)), [](testing::Draw& draw) {
    const std::uint64_t positions = draw.below(draw.one_in(5) ? 40'000 : 700);
    const auto workers = static_cast<unsigned>(1 + draw.below(draw.one_in(5) ? 70 : 7));
    const std::size_t item_bytes = draw.pick<std::size_t>({4, 1, 2, 8, 256});
    SeededDraw random(draw.below(1 << 20));
    const DrawnItems drawn = draw_items(positions, item_bytes, draw.pick<std::uint64_t>({0, 10, 500, 1000}), random);
    const Engine& engine = engine_of(draw.one_in(2) ? Backend::reference : Backend::automatic);
    const OwnerMap owners(engine, positions, workers);
    const Dealt dealt(owners, drawn, item_bytes);
    std::vector<ItemView> views;
    std::uint64_t all_positions = 0;
    for (unsigned w = 0; w < workers; ++w) {
      if (dealt.words[w].words.size() != owners.words(w)) throw std::logic_error("a share has another length");
      if (owners.words(w) != (owners.positions(w) + 63) / 64) throw std::logic_error("words do not fit positions");
      all_positions += owners.positions(w);
      views.push_back({.words = dealt.words[w].words, .values = dealt.values[w].data(), .items = dealt.sizes[w]});
    }
    if (all_positions != positions) throw std::logic_error("positions were lost between the shares");
    Buffer<std::uint64_t> words;
    Buffer<std::byte> values;
    owners.collect(views, item_bytes, words, values);
    if (!same_items({.words = words, .values = values.data(), .items = drawn.items}, drawn, item_bytes)) {
      throw std::logic_error("other items came back");
    }
  });
}

// The items of a dense stretch are everybody's work, wherever it lies: that is what short runs are for.
TEST(OwnerMap, ADenseStretchIsEverybodysWork) {
  for (const unsigned workers : {2u, 4u, 7u, 16u}) {
    const std::uint64_t positions = 1 << 18;
    for (const std::uint64_t begin : {std::uint64_t{0}, positions / 3, positions / 2}) {
      DrawnItems drawn;
      drawn.positions = positions;
      drawn.words.resize(positions / 64);
      drawn.words.fill_zero();
      for (std::uint64_t p = begin; p < begin + positions / 4; ++p) drawn.words[p / 64] |= std::uint64_t{1} << (p % 64);
      drawn.items = positions / 4;
      drawn.values.resize(drawn.items * 4);
      drawn.values.fill_zero();
      const Dealt dealt(OwnerMap(engine_of(Backend::automatic), positions, workers), drawn, 4);
      const auto [least, most] = std::minmax_element(dealt.sizes.begin(), dealt.sizes.end());
      EXPECT_LE(*most, *least + 2 * 512) << workers << " workers, from " << begin;
    }
  }
}

TEST(OwnerMap, SharesAreOfOneLengthButForOneRun) {
  for (const unsigned workers : {1u, 2u, 3u, 64u}) {
    for (const std::uint64_t positions : {0u, 1u, 64u, 65u, 1000u, 100'003u}) {
      const OwnerMap owners(engine_of(Backend::automatic), positions, workers);
      std::uint64_t least = ~std::uint64_t{0}, most = 0;
      for (unsigned w = 0; w < workers; ++w) {
        least = std::min(least, owners.words(w));
        most = std::max(most, owners.words(w));
      }
      EXPECT_LE(most, least + 8) << positions << " among " << workers;
    }
  }
}

}  // namespace
}  // namespace peel::detail
