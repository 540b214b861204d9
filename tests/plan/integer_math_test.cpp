#include "plan/integer_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace peel::detail {
namespace {

std::vector<std::uint64_t> edges() {
  std::vector<std::uint64_t> values = {1, 2, 3, 5, 7, 10, 100, 12345, 999'999'937, ~std::uint64_t{0}};
  for (int bit = 2; bit < 64; ++bit) {
    const std::uint64_t power = std::uint64_t{1} << bit;
    values.insert(values.end(), {power - 1, power, power + 1});
  }
  return values;
}

TEST(IntegerMath, LogarithmsOfPowersOfTwoAreExact) {
  for (std::uint64_t bit = 0; bit < 64; ++bit) EXPECT_EQ(log2_q32(std::uint64_t{1} << bit), bit << 32) << bit;
}

TEST(IntegerMath, LogarithmsAreRoundedDownAndClose) {
  for (const std::uint64_t x : edges()) {
    const long double exact = std::log2(static_cast<long double>(x)) * 0x1p32L;
    const auto found = static_cast<long double>(log2_q32(x));
    EXPECT_LE(found, exact + 1e-6L) << x;
    EXPECT_GT(found, exact - 1.01L) << x;
  }
}

TEST(IntegerMath, LogarithmsNeverDecrease) {
  std::uint64_t last = log2_q32(1);
  for (std::uint64_t x = 2; x < 100'000; ++x) {
    const std::uint64_t now = log2_q32(x);
    ASSERT_GT(now, last) << x;
    last = now;
  }
}

// Known to the last bit, so that nobody's compiler may round otherwise.
TEST(IntegerMath, LogarithmsKnownByHeart) {
  static_assert(log2_q32(1) == 0);
  static_assert(log2_q32(3) == 6807362105);      // 1.58496250072...
  static_assert(log2_q32(10) == 14267572527);    // 3.32192809488...
  static_assert(log2_q32(1000) == 42802717581);  // 9.96578428466...
}

TEST(IntegerMath, RootsAreTheSmallestThatReach) {
  for (std::uint64_t x = 0; x < 10'000; ++x) {
    const std::uint64_t root = root_up(x);
    EXPECT_GE(root * root, x);
    if (root != 0) {
      EXPECT_LT((root - 1) * (root - 1), x);
    }
  }
  EXPECT_EQ(root_up(~std::uint64_t{0}), std::uint64_t{1} << 32);
  EXPECT_EQ(root_up(0xFFFFFFFE00000001u), 0xFFFFFFFFu);  // (2^32 - 1)^2
  EXPECT_EQ(root_up(0xFFFFFFFE00000002u), std::uint64_t{1} << 32);
}

TEST(IntegerMath, DividingUpNeverOverflows) {
  EXPECT_EQ(divide_up(0, 7), 0u);
  EXPECT_EQ(divide_up(1, 7), 1u);
  EXPECT_EQ(divide_up(7, 7), 1u);
  EXPECT_EQ(divide_up(8, 7), 2u);
  EXPECT_EQ(divide_up(~std::uint64_t{0}, 2), std::uint64_t{1} << 63);
  EXPECT_EQ(divide_up(~std::uint64_t{0}, 1), ~std::uint64_t{0});
}

}  // namespace
}  // namespace peel::detail
