// Sums in rank order: rounded once, float64 in a pair of doubles.
#include "plan/rank_sum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>

#include "draw.h"

namespace peel::detail {
namespace {

template <typename T>
T sum_of(std::initializer_list<T> values) {
  RankSum<T> sum{};
  for (const T value : values) accumulate(sum, value);
  return rounded<T>(sum);
}

TEST(RankSum, RoundsOnce) {
  EXPECT_EQ(sum_of({0x1p24f, 1.0f, 1.0f}), 0x1p24f + 2.0f);  // each one alone would be lost
  EXPECT_EQ(sum_of({1e30f, 1.0f, -1e30f}), 0.0f);            // 100 bits are more than a double has
  EXPECT_EQ(sum_of({1e8f, 1.0f, -1e8f}), 1.0f);
  const auto half = [](double x) { return narrow<float16>(x); };
  EXPECT_EQ(widen(sum_of({half(2048), half(1), half(1)})), 2050);
  EXPECT_EQ(widen(sum_of({half(65504), half(65504), half(-65504)})), 65504);
  const auto brain = [](double x) { return narrow<bfloat16>(x); };
  EXPECT_EQ(widen(sum_of({brain(256), brain(1), brain(1)})), 258);
}

TEST(RankSum, KeepsWhatADoubleLoses) {
  EXPECT_EQ(sum_of({0x1p53, 1.0, 1.0}), 0x1p53 + 2);
  EXPECT_EQ(sum_of({1e17, 1.0, -1e17}), 1.0);
  EXPECT_EQ(sum_of({1.0, 1e17, -1e17}), 1.0);
  EXPECT_EQ(sum_of({-0.0}), 0.0);
}

// The exact sum of two doubles is that of the pair.
TEST(RankSum, OfTwoDoublesIsExact) {
  testing::SeededDraw draw(7);
  for (int i = 0; i < 10'000; ++i) {
    const auto value = [&] {
      return std::ldexp(static_cast<double>(draw.bits() >> 11), static_cast<int>(draw.below(60)) - 30) *
             (draw.one_in(2) ? -1 : 1);
    };
    const double a = value(), b = value();
    DoublePair sum;
    accumulate(sum, a);
    accumulate(sum, b);
    __extension__ using Wide = __float128;
    ASSERT_TRUE(static_cast<Wide>(sum.sum) + static_cast<Wide>(sum.error) ==
                static_cast<Wide>(a) + static_cast<Wide>(b));
  }
}

TEST(RankSum, PassesOnWhatIsNotFinite) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(sum_of({1.0, infinity, 2.0}), infinity);
  EXPECT_EQ(sum_of({1.0, -infinity, 2.0}), -infinity);
  EXPECT_TRUE(std::isnan(sum_of({infinity, -infinity})));
  EXPECT_TRUE(std::isnan(sum_of({1.0f, std::numeric_limits<float>::quiet_NaN()})));
  EXPECT_EQ(sum_of({std::numeric_limits<double>::max(), std::numeric_limits<double>::max()}), infinity);
}

TEST(RankSum, WrapsIntegers) {
  EXPECT_EQ(sum_of<std::int8_t>({127, 1}), -128);
  EXPECT_EQ(sum_of<std::uint16_t>({65535, 2}), 1);
  EXPECT_EQ(sum_of<std::int64_t>({std::numeric_limits<std::int64_t>::max(), 1}),
            std::numeric_limits<std::int64_t>::min());
}

}  // namespace
}  // namespace peel::detail
