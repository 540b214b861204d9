// Element counts past 2^32. The sparse view never touches the elements, so coarse grains keep these tests small: the
// index of 2^39 elements in grains of 1024 is 64 MiB. An array of so many real elements takes PEEL_TEST_HUGE=1 and
// 20 GB.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "draw.h"
#include "peel/peel.h"
#include "plan/mapping.h"
#include "scale.h"

namespace peel::testing {
namespace {

struct SparseInput {
  std::vector<std::uint64_t> items;
  std::vector<std::int16_t> values;
};

// Some items anywhere, and those around every limit that 32 bits could set.
SparseInput sparse_input(const Plan& plan, std::uint64_t seed) {
  std::vector<std::uint64_t> items = {0, 1, plan.items() - 2, plan.items() - 1};
  for (const std::uint64_t edge : {std::uint64_t{1} << 31, std::uint64_t{1} << 32}) {
    const std::uint64_t item = detail::item_of(plan.geometry(), edge);
    items.insert(items.end(), {item - 1, item, item + 1});
    if (edge + 1 < plan.items()) items.insert(items.end(), {edge - 1, edge, edge + 1});
  }
  SeededDraw draw(seed);
  for (int i = 0; i < 2000; ++i) items.push_back(draw.below(plan.items()));
  std::sort(items.begin(), items.end());
  items.erase(std::unique(items.begin(), items.end()), items.end());
  SparseInput x{std::move(items), {}};
  for (std::uint64_t i = 0; i < x.items.size() * plan.grain(); ++i) {
    x.values.push_back(static_cast<std::int16_t>(1 + draw.below(1000)));
  }
  return x;
}

PlanOptions options_of(std::uint64_t elements, Codec codec, Index index, std::uint32_t grain) {
  return {.elements = elements,
          .type = ElementType::int16,
          .expected_items = 4100,
          .workers = 2,
          .codec = codec,
          .grain = grain,
          .phase = grain / 2,
          .index = index};
}

void expect_sum_past_four_billion(const PlanOptions& options, Backend backend) {
  const Plan plan = Plan::make(options);
  SCOPED_TRACE(plan.describe());
  const SparseInput a = sparse_input(plan, 1), b = sparse_input(plan, 2);
  const Execution execution{.backend = backend, .threads = 2};
  Message mine, theirs;
  encode(plan, ConstSparse(a.items, a.values.data(), ElementType::int16), mine, execution);
  encode(plan, ConstSparse(b.items, b.values.data(), ElementType::int16), theirs, execution);
  merge(plan, mine, theirs, execution);
  Sparse sum;
  const Recovery r = decode(plan, mine, sum, {.execution = execution});
  EXPECT_EQ(r.lost, 0u);

  std::vector<std::uint64_t> both;
  std::set_union(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(), std::back_inserter(both));
  ASSERT_EQ(sum.items, both);
  const std::uint32_t grain = plan.grain();
  std::size_t i = 0, j = 0;
  const detail::Geometry& g = plan.geometry();
  for (std::size_t k = 0; k < both.size(); ++k) {
    const bool in_a = i < a.items.size() && a.items[i] == both[k];
    const bool in_b = j < b.items.size() && b.items[j] == both[k];
    const auto inside =
        static_cast<std::uint32_t>(detail::last_element(g, both[k]) - detail::first_element(g, both[k]));
    for (std::uint32_t lane = detail::first_lane(g, both[k]); lane < detail::first_lane(g, both[k]) + inside; ++lane) {
      const int exact = (in_a ? a.values[i * grain + lane] : 0) + (in_b ? b.values[j * grain + lane] : 0);
      ASSERT_EQ(sum.values_as<std::int16_t>()[k * grain + lane], exact) << "item " << both[k];
    }
    i += in_a;
    j += in_b;
  }
}

TEST(LargeArrays, PastFourBillionElements) {
  const std::uint64_t elements = (std::uint64_t{1} << 33) + 12'345;
  for (const Backend backend : available_backends()) {
    for (const Codec codec : {Codec::packed, Codec::sketch}) {
      for (const Index index : {Index::bitmap, Index::list}) {
        expect_sum_past_four_billion(options_of(elements, codec, index, 1024), backend);
      }
    }
  }
}

TEST(LargeArrays, PastAHundredBillionElements) {
  if (small_scale()) GTEST_SKIP() << "half a billion items take a sanitizer minutes";
  const std::uint64_t elements = (std::uint64_t{1} << 39) + 12'345;
  const Backend fastest = available_backends().back();
  expect_sum_past_four_billion(options_of(elements, Codec::packed, Index::bitmap, 1024), fastest);
  expect_sum_past_four_billion(options_of(elements, Codec::sketch, Index::bitmap, 1024), fastest);
}

TEST(LargeArrays, PastFourBillionItems) {
  if (!huge_scale()) GTEST_SKIP() << "set PEEL_TEST_HUGE=1: the index alone is half a gigabyte";
  const std::uint64_t elements = (std::uint64_t{1} << 32) + 12'345;
  for (const Backend backend : available_backends()) {
    for (const Codec codec : {Codec::packed, Codec::sketch}) {
      for (const Index index : {Index::bitmap, Index::list, Index::bloom}) {
        if (index == Index::bloom) continue;  // false positives are items of their own; see DensePastFourBillion
        expect_sum_past_four_billion(options_of(elements, codec, index, 1), backend);
      }
    }
  }
}

TEST(LargeArrays, DensePastFourBillion) {
  if (!huge_scale()) GTEST_SKIP() << "set PEEL_TEST_HUGE=1: this takes 20 GB";
  const std::uint64_t elements = (std::uint64_t{1} << 32) + 4099;
  std::vector<std::int8_t> x(elements), out(elements);
  SeededDraw draw(3);
  std::uint64_t items = 0;
  for (std::uint64_t e = 0; e < elements; e += 1 + draw.below(8192), ++items)
    x[e] = static_cast<std::int8_t>(1 + draw.below(100));
  x[std::uint64_t{1} << 32] = 5;
  x[elements - 1] = 7;
  for (const Backend backend : available_backends()) {
    for (const Codec codec : {Codec::packed, Codec::sketch}) {
      for (const Index index : {Index::bitmap, Index::bloom, Index::list}) {
        const Plan plan = Plan::make({.elements = elements,
                                      .type = ElementType::int8,
                                      .expected_items = items + 2,
                                      .codec = codec,
                                      .index = index});
        Message message;
        encode(plan, x, message, {.backend = backend, .threads = 2});
        const Recovery r = decode(plan, message, out, {.execution = {.backend = backend, .threads = 2}});
        EXPECT_EQ(r.lost, 0u) << plan.describe();
        EXPECT_GE(r.items, items) << plan.describe();
        EXPECT_EQ(std::memcmp(x.data(), out.data(), elements), 0) << plan.describe();
      }
    }
  }
}

}  // namespace
}  // namespace peel::testing
