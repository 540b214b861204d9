// The Bloom index: never a false negative, false positives as theory has them for uniform supports and for runs, and
// the same rows from every backend.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <vector>

#include "codec/engine.h"
#include "draw.h"
#include "peel/peel.h"
#include "plan/mapping.h"
#include "scale.h"

namespace peel::detail {
namespace {

using peel::testing::scaled;
using peel::testing::SeededDraw;
using Words = std::vector<std::uint64_t>;

struct Filter {
  Buffer<std::uint64_t> items;  // whole rows; engines may rely on the alignment of buffers
  Buffer<std::uint64_t> rows;
  Buffer<std::uint64_t> found;
};

Words words_of(const Buffer<std::uint64_t>& buffer) { return {buffer.data(), buffer.data() + buffer.size()}; }

Filter fill(const Geometry& g, const Engine& engine, const std::vector<std::uint64_t>& support, unsigned threads) {
  WorkspaceData workspace;
  const Run run{g, threads, workspace};
  Filter filter;
  filter.items.resize(row_count(g) * kBloomRowWords);
  filter.items.fill_zero();
  for (const std::uint64_t item : support) filter.items[item / 64] |= std::uint64_t{1} << (item % 64);
  filter.rows.resize(g.bloom_rows * kBloomRowWords);
  filter.rows.fill_zero();
  engine.bloom_insert(run, filter.items.data(), filter.rows.data());
  filter.found.resize(filter.items.size());
  std::fill_n(filter.found.data(), filter.found.size(), 0xDEAD);
  engine.bloom_query(run, filter.rows.data(), filter.found.data());
  return filter;
}

std::uint64_t count(const Buffer<std::uint64_t>& buffer) {
  std::uint64_t bits = 0;
  for (const std::uint64_t word : words_of(buffer)) bits += static_cast<std::uint64_t>(std::popcount(word));
  return bits;
}

Plan bloom_plan(std::uint64_t elements, std::uint64_t items, std::uint64_t seed) {
  return Plan::make({.elements = elements, .expected_items = items, .index = Index::bloom, .seed = seed});
}

std::vector<std::uint64_t> uniform(std::uint64_t elements, std::uint64_t one_of, SeededDraw& draw) {
  std::vector<std::uint64_t> items;
  for (std::uint64_t i = 0; i < elements; ++i) {
    if (draw.below(one_of) == 0) items.push_back(i);
  }
  return items;
}

std::vector<std::uint64_t> runs(std::uint64_t elements, std::uint64_t one_of, SeededDraw& draw) {
  std::vector<std::uint64_t> items;
  constexpr std::uint64_t kLength = 64;
  for (std::uint64_t i = draw.below(kLength * one_of); i + kLength <= elements;
       i += kLength + draw.below(2 * kLength * (one_of - 1))) {
    for (std::uint64_t k = 0; k < kLength; ++k) items.push_back(i + k);
  }
  return items;
}

TEST(Bloom, NeverForgetsAnItemAndKnowsNoneThatIsNot) {
  SeededDraw draw(41);
  for (const std::uint64_t elements : {1ull, 63ull, 64ull, 511ull, 512ull, 513ull, 10'007ull, 300'001ull}) {
    for (const std::uint64_t one_of : {2ull, 50ull, 3000ull}) {
      const Plan plan = bloom_plan(elements, elements / one_of, elements);
      const std::vector<std::uint64_t> support = uniform(elements, one_of, draw);
      for (const Backend backend : available_backends()) {
        const Filter filter = fill(plan.geometry(), engine_of(backend), support, 2);
        for (std::size_t w = 0; w < filter.items.size(); ++w) {
          ASSERT_EQ(filter.items[w] & ~filter.found[w], 0u) << "a false negative in word " << w << "\n"
                                                            << plan.describe();
        }
        for (std::uint64_t i = elements; i < filter.found.size() * 64; ++i) {
          ASSERT_EQ((filter.found[i / 64] >> (i % 64)) & 1, 0u) << "item " << i << " is past the end";
        }
      }
    }
  }
}

TEST(Bloom, AnEmptyFilterIsEmptyAndAFullOneIsFull) {
  const Plan plan = bloom_plan(10'000, 100, 1);
  for (const Backend backend : available_backends()) {
    EXPECT_EQ(count(fill(plan.geometry(), engine_of(backend), {}, 1).found), 0u);
    std::vector<std::uint64_t> all(10'000);
    for (std::uint64_t i = 0; i < all.size(); ++i) all[i] = i;
    EXPECT_EQ(count(fill(plan.geometry(), engine_of(backend), all, 1).found), 10'000u);
  }
}

TEST(Bloom, BackendsAndThreadsFillTheSameRows) {
  SeededDraw draw(42);
  for (const std::uint64_t elements : {700ull, 100'000ull, 400'003ull}) {
    const Plan plan = bloom_plan(elements, elements / 30, 9);
    const std::vector<std::uint64_t> support = uniform(elements, 30, draw);
    const Filter reference = fill(plan.geometry(), reference_engine(), support, 1);
    for (const Backend backend : available_backends()) {
      for (const unsigned threads : {1u, 2u, 3u, 7u}) {
        const Filter filter = fill(plan.geometry(), engine_of(backend), support, threads);
        EXPECT_EQ(words_of(filter.rows), words_of(reference.rows));
        EXPECT_EQ(words_of(filter.found), words_of(reference.found));
      }
    }
  }
}

// A filter planned for its items has half of its bits set, so a stranger passes all k probes with chance 2^-k.
void expect_false_positives(
    const std::function<std::vector<std::uint64_t>(std::uint64_t, std::uint64_t, SeededDraw&)>& draw_support,
    double allowed) {
  const std::uint64_t elements = scaled(std::uint64_t{1} << 22, std::uint64_t{1} << 20);
  for (const std::uint64_t one_of : {20ull, 100ull, 1000ull}) {
    double found = 0, theory = 0;
    std::uint32_t hashes = 0;
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      SeededDraw draw(seed);
      const std::vector<std::uint64_t> support = draw_support(elements, one_of, draw);
      const Plan plan = bloom_plan(elements, support.size(), mix64(seed));
      const Filter filter = fill(plan.geometry(), engine_of(Backend::automatic), support, 1);
      hashes = plan.geometry().bloom_hashes;
      found += static_cast<double>(count(filter.found) - support.size());
      theory += static_cast<double>(elements - support.size()) * std::ldexp(1, -static_cast<int>(hashes));
    }
    EXPECT_NEAR(found / theory, 1, allowed)
        << "one of " << one_of << ", " << hashes << " hashes, " << theory << " expected";
  }
}

TEST(Bloom, FalsePositivesOfUniformSupportsAreTwoToTheMinusK) { expect_false_positives(uniform, 0.15); }
// A run of 64 sets 64 bits of one row or none: rows are less evenly full, and strangers come in runs as well.
TEST(Bloom, FalsePositivesOfRunsAreNotMany) { expect_false_positives(runs, 0.6); }

TEST(Bloom, APlanExpectsItsFalsePositives) {
  const std::uint64_t elements = 1 << 20;
  SeededDraw draw(43);
  const std::vector<std::uint64_t> support = uniform(elements, 100, draw);
  const Plan plan = bloom_plan(elements, support.size(), 77);
  std::vector<float> x(elements);
  for (const std::uint64_t i : support) x[i] = 1;
  Message message(plan);
  encode(plan, x, message);
  EXPECT_EQ(message.index.size() * 8, plan.index_bytes());
  EXPECT_NEAR(static_cast<double>(message.payload.size()) / static_cast<double>(plan.payload_bytes()), 1, 0.02);
}

}  // namespace
}  // namespace peel::detail
