// What workers tell each other by an OR: the largest of all counts and magnitudes, never below the truth.
#include "allreduce/vitals.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "codec/values.h"
#include "peel/gradient.h"
#include "property.h"
#include "scale.h"

namespace peel::detail {
namespace {

using testing::Draw;
using Words = std::array<std::uint64_t, kVitalWords>;

Words written(ElementType type, const Vitals& vitals) {
  Words words;
  words.fill(~std::uint64_t{0});  // nothing old may stay
  write_vitals(type, vitals, words);
  return words;
}

Words combined(const Words& a, const Words& b) {
  Words both;
  for (std::size_t i = 0; i < kVitalWords; ++i) both[i] = a[i] | b[i];
  return both;
}

TEST(Vitals, CountsAreNeverBelowTheTruthAndAtMost42PercentAbove) {
  std::vector<std::uint64_t> counts = {0};
  for (int power = 0; power <= 31; ++power) {
    for (const std::int64_t near : {-1, 0, 1}) counts.push_back((std::uint64_t{1} << power) + near);
  }
  for (std::uint64_t i = 1; i < 5000; ++i) counts.push_back(i);
  for (const std::uint64_t items : counts) {
    if (items > std::uint64_t{1} << 31) continue;
    const Vitals seen =
        read_vitals(ElementType::float32, written(ElementType::float32, {.items = items, .magnitude = {}}));
    EXPECT_GE(seen.items, items);
    EXPECT_LE(seen.items, items + items * 422 / 1000 + 1) << items;
    EXPECT_FALSE(seen.magnitude);
    EXPECT_TRUE(seen.finite);
  }
}

TEST(Vitals, MagnitudesAreNeverBelowTheTruth) {
  for (const ElementType type : {ElementType::float32, ElementType::float16, ElementType::bfloat16}) {
    for (std::int32_t m = -148; m <= 128; ++m) {
      const Vitals seen = read_vitals(type, written(type, {.items = 1, .magnitude = m}));
      EXPECT_EQ(seen.magnitude, m);
    }
  }
  for (std::int32_t m = -1073; m <= 1024; ++m) {
    const Vitals seen = read_vitals(ElementType::float64, written(ElementType::float64, {.items = 1, .magnitude = m}));
    ASSERT_TRUE(seen.magnitude);
    EXPECT_GE(*seen.magnitude, m);
    EXPECT_LT(*seen.magnitude, m + 5);
  }
}

TEST(Vitals, AnOrGivesTheLargestOfAll) {
  testing::check_property(71, static_cast<int>(testing::scaled(2000, 300)), [](Draw& draw) {
    const ElementType type = draw.pick({ElementType::float32, ElementType::float64});
    Words all{};
    Vitals most{.items = 0, .magnitude = {}, .finite = true};
    for (std::uint64_t n = 1 + draw.below(5); n > 0; --n) {
      Vitals one{.items = draw.below(std::uint64_t{1} << draw.below(31)), .magnitude = {}, .finite = !draw.one_in(5)};
      if (!draw.one_in(4)) one.magnitude = static_cast<std::int32_t>(draw.between(-140, 120));
      all = combined(all, written(type, one));
      most.items = std::max(most.items, one.items);
      most.finite = most.finite && one.finite;
      if (one.magnitude) most.magnitude = std::max(most.magnitude.value_or(*one.magnitude), *one.magnitude);
    }
    const Vitals seen = read_vitals(type, all);
    const Vitals alone = read_vitals(type, written(type, most));
    if (seen.items != alone.items || seen.finite != alone.finite || seen.magnitude != alone.magnitude) {
      throw std::logic_error("an OR of vitals is not the largest of them");
    }
  });
}

template <typename T>
Extremes extremes(const std::vector<T>& x) {
  return find_extremes(ElementOf<T>::value, std::as_bytes(std::span(x)));
}

TEST(Extremes, OfFloats) {
  EXPECT_FALSE(extremes(std::vector<float>{}).magnitude);
  EXPECT_FALSE(extremes(std::vector<float>{0.0f, -0.0f}).magnitude);
  EXPECT_EQ(extremes(std::vector<float>{0.5f, -1.0f, 0.25f}).magnitude, 1);  // 1 < 2^1
  EXPECT_EQ(extremes(std::vector<float>{0.5f, -0.999f}).magnitude, 0);
  EXPECT_EQ(extremes(std::vector<float>{std::numeric_limits<float>::denorm_min()}).magnitude, -148);
  EXPECT_EQ(extremes(std::vector<float>{std::numeric_limits<float>::max()}).magnitude, 128);
  EXPECT_EQ(extremes(std::vector<double>{std::numeric_limits<double>::denorm_min()}).magnitude, -1073);
  EXPECT_EQ(extremes(std::vector<double>{-std::numeric_limits<double>::max()}).magnitude, 1024);
  EXPECT_EQ(extremes(std::vector<float16>{narrow<float16>(3.0)}).magnitude, 2);
  EXPECT_EQ(extremes(std::vector<bfloat16>{narrow<bfloat16>(-3.0)}).magnitude, 2);
}

TEST(Extremes, OneValueThatIsNotFiniteIsEnough) {
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> x(1000, 1.0f);
    EXPECT_TRUE(extremes(x).finite);
    x[617] = bad;
    EXPECT_FALSE(extremes(x).finite);
  }
  EXPECT_FALSE(extremes(std::vector<float16>{narrow<float16>(1e9)}).finite);
}

TEST(Extremes, IntegersHaveNone) {
  EXPECT_FALSE(extremes(std::vector<std::int32_t>{1 << 30}).magnitude);
  EXPECT_TRUE(extremes(std::vector<std::int8_t>{-128}).finite);
}

}  // namespace
}  // namespace peel::detail
