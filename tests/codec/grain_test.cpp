// best_grain: against counting by hand at every grain and phase, on rows that start somewhere, and on samples.
#include "peel/grain.h"

#include <gtest/gtest.h>

#include <vector>

#include "codec/values.h"
#include "draw.h"
#include "refusal.h"
#include "scale.h"

namespace peel::testing {
namespace {

std::vector<float> rows(std::uint64_t elements, std::uint64_t length, std::uint64_t first, std::uint64_t one_of,
                        SeededDraw& draw) {
  std::vector<float> x(elements);
  for (std::uint64_t row = first; row + length <= elements; row += length) {
    if (draw.below(one_of) != 0) continue;
    for (std::uint64_t k = 0; k < length; ++k) x[row + k] = 1.0f;
  }
  return x;
}

std::vector<std::uint64_t> support_of(const std::vector<float>& x) {
  std::vector<std::uint64_t> words((x.size() + 63) / 64);
  for (std::size_t i = 0; i < x.size(); ++i) words[i / 64] |= std::uint64_t{x[i] != 0} << (i % 64);
  return words;
}

std::uint64_t count_items(const std::vector<float>& x, std::uint32_t grain, std::uint32_t phase) {
  const std::uint32_t lead = (grain - phase) % grain;
  std::uint64_t items = 0, last = ~std::uint64_t{0};
  for (std::uint64_t i = 0; i < x.size(); ++i) {
    if (x[i] == 0 || (i + lead) / grain == last) continue;
    last = (i + lead) / grain;
    ++items;
  }
  return items;
}

std::uint64_t message_bytes(PlanOptions options, std::uint32_t grain, std::uint32_t phase, std::uint64_t items) {
  options.grain = grain;
  options.phase = phase;
  options.expected_items = items;
  return Plan::make(options).message_bytes();
}

// Small arrays are counted whole: the choice must be the best of all 2,047 pairs.
void expect_best(const std::vector<float>& x, PlanOptions options) {
  options.elements = x.size();
  const GrainChoice choice = best_grain(x, options);
  EXPECT_FALSE(choice.sampled);
  EXPECT_EQ(choice.expected_items, count_items(x, choice.grain, choice.phase));
  EXPECT_EQ(choice.message_bytes, message_bytes(options, choice.grain, choice.phase, choice.expected_items));
  for (std::uint32_t grain = 1; grain <= 1024; grain *= 2) {
    for (std::uint32_t phase = 0; phase < grain; ++phase) {
      const std::uint64_t bytes = message_bytes(options, grain, phase, count_items(x, grain, phase));
      // Phases with equally many items may differ by a partial item at the ends: one index word.
      ASSERT_LE(choice.message_bytes, bytes + 16)
          << "grain " << grain << ", phase " << phase << " against " << choice.grain << ", " << choice.phase;
    }
  }
  const GrainChoice from_bits = best_grain(std::span<const std::uint64_t>(support_of(x)), options);
  EXPECT_EQ(from_bits.grain, choice.grain);
  EXPECT_EQ(from_bits.phase, choice.phase);
  EXPECT_EQ(from_bits.expected_items, choice.expected_items);
}

TEST(BestGrain, IsTheBestOfAllPairs) {
  SeededDraw draw(51);
  for (std::uint64_t i = 0; i < scaled(12, 3); ++i) {
    const std::uint64_t elements = 1 + draw.below(5000);
    const std::uint64_t length = std::uint64_t{1} << draw.below(9);
    const std::vector<float> x = rows(elements, length, draw.below(length), 2 + draw.below(10), draw);
    expect_best(x, {});
    if (i % 3 == 0) expect_best(x, {.codec = Codec::sketch});
    if (i % 3 == 1) expect_best(x, {.index = Index::bitmap});
    if (i % 3 == 2) expect_best(x, {.allow_list = true});
  }
}

TEST(BestGrain, CountsWindowsThatTouch) {
  // More than one window of 16,384 positions, and rows across their edges.
  SeededDraw draw(52);
  std::vector<float> x = rows(40'000, 96, 33, 9, draw);
  PlanOptions options{.elements = x.size(), .index = Index::bitmap};
  const GrainChoice choice = best_grain(x, options);
  EXPECT_EQ(choice.expected_items, count_items(x, choice.grain, choice.phase));
  expect_best(x, options);
}

TEST(BestGrain, FindsRowsAndWhereTheyStart) {
  SeededDraw draw(53);
  for (const std::uint64_t first : {0ull, 1ull, 13ull, 32ull, 63ull}) {
    const std::vector<float> x = rows(200'000, 64, first, 30, draw);
    const GrainChoice choice = best_grain(x, {.elements = x.size()});
    EXPECT_EQ(choice.grain, 64u);
    EXPECT_EQ(choice.phase, first);
  }
}

TEST(BestGrain, OfUniformElementsIsOne) {
  SeededDraw draw(54);
  const std::vector<float> x = rows(200'000, 1, 0, 10, draw);
  EXPECT_EQ(best_grain(x, {.elements = x.size()}).grain, 1u);
}

TEST(BestGrain, OfNothingAndOfEverythingIsAPlan) {
  for (const std::uint64_t elements : {0ull, 1ull, 1000ull}) {
    for (const float value : {0.0f, 1.0f}) {
      const std::vector<float> x(elements, value);
      const GrainChoice choice = best_grain(x, {.elements = elements});
      EXPECT_EQ(choice.expected_items, value == 0 ? 0 : count_items(x, choice.grain, choice.phase));
      EXPECT_NO_THROW((void)Plan::make({.elements = elements,
                                        .expected_items = choice.expected_items,
                                        .grain = choice.grain,
                                        .phase = choice.phase}));
    }
  }
}

TEST(BestGrain, SamplesLargeArraysAndStillFindsRows) {
  // 2^25 elements as bits: 2,048 windows, of which half are seen.
  const std::uint64_t elements = (std::uint64_t{1} << 25) + 777;
  std::vector<std::uint64_t> words(elements / 64 + 1);
  SeededDraw draw(55);
  std::uint64_t rows_set = 0;
  for (std::uint64_t row = 48; row + 64 <= elements; row += 64) {
    if (draw.below(25) != 0) continue;
    ++rows_set;
    words[row / 64] |= ~std::uint64_t{0} << 48;
    words[row / 64 + 1] |= ~std::uint64_t{0} >> 16;
  }
  const GrainChoice choice = best_grain(std::span<const std::uint64_t>(words), {.elements = elements});
  EXPECT_TRUE(choice.sampled);
  EXPECT_EQ(choice.grain, 64u);
  EXPECT_EQ(choice.phase, 48u);
  EXPECT_NEAR(static_cast<double>(choice.expected_items), static_cast<double>(rows_set),
              0.05 * static_cast<double>(rows_set));
  EXPECT_GT(choice.seconds, 0);
}

TEST(BestGrain, IsTheSameForTheSameSupport) {
  SeededDraw draw(56);
  std::vector<float> x = rows(100'000, 32, 5, 11, draw);
  const PlanOptions options{.elements = x.size(), .workers = 8};
  const GrainChoice first = best_grain(x, options);
  for (float& value : x) value *= -1e-20f;  // other values, the same support
  const GrainChoice again = best_grain(x, options);
  EXPECT_EQ(first.grain, again.grain);
  EXPECT_EQ(first.phase, again.phase);
  EXPECT_EQ(first.expected_items, again.expected_items);
  EXPECT_EQ(first.message_bytes, again.message_bytes);
}

TEST(BestGrain, WorksForEveryType) {
  for (unsigned type = 0; type < 8; ++type) {
    const auto element = static_cast<ElementType>(type);
    std::vector<std::byte> bytes(4096 * size_of(element));
    for (std::size_t row = 16; row + 16 <= 4096; row += 160) {
      for (std::size_t i = row; i < row + 16; ++i) bytes[i * size_of(element)] = std::byte{1};
    }
    const GrainChoice choice = best_grain(ConstDense(bytes.data(), 4096, element), {.elements = 4096, .type = element});
    EXPECT_EQ(choice.grain, 16u) << name(element);
    EXPECT_EQ(choice.expected_items, 26u) << name(element);
  }
}

// What a scale rounds to zero is no item: best_grain must see the array as encode will.
TEST(BestGrain, SeesTheArrayThroughItsScale) {
  std::vector<float> x(10'000, 1e-6f);
  for (std::size_t i = 640; i < 704; ++i) x[i] = 1.0f;
  const GrainChoice choice =
      best_grain(x, {.elements = x.size(), .cells = CellType::fixed32, .index = Index::bitmap, .scale = 10});
  EXPECT_EQ(choice.expected_items, 64u / choice.grain);
}

TEST(BestGrain, RefusesAnArrayThatIsNotTheOptions) {
  const std::vector<float> x(100);
  const std::vector<std::uint64_t> words(1);
  expect_refusal(ErrorCode::invalid_argument, "length and type", [&] { (void)best_grain(x, {.elements = 99}); });
  expect_refusal(ErrorCode::invalid_argument, "length and type",
                 [&] { (void)best_grain(x, {.elements = 100, .type = ElementType::int32}); });
  expect_refusal(ErrorCode::invalid_argument, "length and type",
                 [] { (void)best_grain(ConstDense(nullptr, 100, ElementType::float32), {.elements = 100}); });
  const auto* odd = reinterpret_cast<const std::byte*>(x.data()) + 1;
  expect_refusal(ErrorCode::invalid_argument, "aligned",
                 [&] { (void)best_grain(ConstDense(odd, 99, ElementType::float32), {.elements = 99}); });
  expect_refusal(ErrorCode::invalid_argument, "one bit",
                 [&] { (void)best_grain(std::span(words), {.elements = 100}); });
}

}  // namespace
}  // namespace peel::testing
