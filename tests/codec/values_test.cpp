// Elements and cells: what counts as zero against what a cell would hold, and what fits into one.
#include "codec/values.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "peel/plan.h"

namespace peel::detail {
namespace {

// ---- zero, and what fits

Geometry fixed(ElementType type, CellType cells, std::int32_t scale, std::uint32_t workers = 1) {
  return Plan::make({.elements = 1, .type = type, .workers = workers, .cells = cells, .scale = scale}).geometry();
}

template <typename T>
std::vector<T> interesting(std::int32_t scale) {
  std::vector<double> values = {0.0,
                                1.0,
                                1e-30,
                                3.14159,
                                65504.0,
                                1e30,
                                std::numeric_limits<double>::denorm_min(),
                                std::numeric_limits<double>::max(),
                                std::numeric_limits<double>::infinity(),
                                std::numeric_limits<double>::quiet_NaN(),
                                static_cast<double>(5.9e-8f),
                                1e-45,
                                9.2e-41};
  for (const int exponent : {-scale - 2, -scale - 1, -scale, -scale + 1, -scale + 30}) {  // around half a step
    for (const double factor :
         {1.0, 0.99, 1.01, 1.5, 1 + 0x1p-10, 1 - 0x1p-10, 1 + 0x1p-23, 1 - 0x1p-24, 1 + 0x1p-52}) {
      values.push_back(std::ldexp(factor, exponent));
    }
  }
  std::vector<T> elements;
  for (const double value : values) {
    elements.push_back(narrow<T>(value));
    elements.push_back(narrow<T>(-value));
  }
  return elements;
}

template <typename T>
void expect_zeros(ElementType type) {
  for (const CellType cells : {CellType::fixed32, CellType::fixed64}) {
    for (const std::int32_t scale :
         {-900, -300, -130, -128, -127, -17, -16, -15, -1,  0,   1,   4,   13,  14,  15,  23,
          24,   25,   30,   60,   125,  126, 127, 132, 133, 134, 148, 149, 150, 151, 500, 900}) {
      const Geometry g = fixed(type, cells, scale);
      const ZeroTest zero = zero_test(g);
      for (const T value : interesting<T>(scale)) {
        const double wide = widen(value);
        // Exact: multiplying by a power of two does not round, and 80 bits do not overflow or vanish here.
        const long double steps = std::nearbyint(std::ldexp(static_cast<long double>(wide), scale));
        const bool vanishes = std::isfinite(wide) && steps == 0;
        ASSERT_EQ(is_zero(value, zero), vanishes) << wide << " at scale " << scale;
      }
    }
  }
}

TEST(Zero, IsWhatAFixedCellRoundsToZeroAndNeverInfinity) {
  expect_zeros<float>(ElementType::float32);
  expect_zeros<double>(ElementType::float64);
  expect_zeros<float16>(ElementType::float16);
  expect_zeros<bfloat16>(ElementType::bfloat16);
}

TEST(Zero, OfNativeAndFloatCellsIsZeroOfEitherSign) {
  for (const CellType cells : {CellType::native, CellType::float32}) {
    const ZeroTest zero = zero_test(fixed(ElementType::float32, cells, 0));
    EXPECT_TRUE(is_zero(0.0f, zero));
    EXPECT_TRUE(is_zero(-0.0f, zero));
    EXPECT_FALSE(is_zero(std::numeric_limits<float>::denorm_min(), zero));
    EXPECT_FALSE(is_zero(-std::numeric_limits<float>::denorm_min(), zero));
    EXPECT_FALSE(is_zero(std::numeric_limits<float>::quiet_NaN(), zero));
    EXPECT_FALSE(is_zero(-std::numeric_limits<float>::infinity(), zero));
  }
  const ZeroTest integer = zero_test(fixed(ElementType::int8, CellType::fixed32, 0));
  EXPECT_TRUE(is_zero(std::int8_t{0}, integer));
  EXPECT_FALSE(is_zero(std::int8_t{-128}, integer));
}

TEST(Cells, HoldWhatFitsAndSayWhatDoesNot) {
  for (const std::uint32_t workers : {1u, 2u, 3u, 65'536u, 0x7FFFFFFEu}) {
    const Scaling narrow_scaling(fixed(ElementType::float64, CellType::fixed32, 0, workers));
    const Scaling wide_scaling(fixed(ElementType::float64, CellType::fixed64, 0, workers));
    const auto limit = static_cast<double>(0x7FFFFFFFu / workers);
    for (const double sign : {1.0, -1.0}) {
      bool fits = true;
      EXPECT_EQ(static_cast<std::int32_t>(to_cell<std::uint32_t>(sign * limit, narrow_scaling, fits)), sign * limit);
      EXPECT_TRUE(fits);
      to_cell<std::uint32_t>(sign * (limit + 1), narrow_scaling, fits);
      EXPECT_FALSE(fits) << workers;
      fits = true;
      to_cell<std::uint64_t>(sign * limit * 1024, wide_scaling, fits);
      EXPECT_TRUE(fits);
      to_cell<std::uint64_t>(sign * std::ldexp(1.0, 63) / workers * 1.001, wide_scaling, fits);
      EXPECT_FALSE(fits) << workers;
    }
  }
  const Scaling scaling(fixed(ElementType::float64, CellType::fixed64, 0));
  for (const double bad : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN(), 1e300}) {
    bool fits = true;
    to_cell<std::uint64_t>(bad, scaling, fits);
    EXPECT_FALSE(fits);
    fits = true;
    to_cell<std::uint32_t>(bad, scaling, fits);
    EXPECT_FALSE(fits);
  }
}

// Rounding first and comparing then is the definition.
TEST(Cells, HoldWhatRoundsToTheirLimit) {
  std::vector<std::uint64_t> limits = {0, 1, 2, 3, 0x7FFFFFFE, 0x7FFFFFFF, 0x7FFFFFFFFFFFFFFE, 0x7FFFFFFFFFFFFFFF};
  for (int bit = 50; bit < 63; ++bit) {
    for (const std::uint64_t change : {0, 1, 2, 3, 511, 512, 513}) {
      limits.push_back((std::uint64_t{1} << bit) + change);
      limits.push_back((std::uint64_t{1} << bit) - change);
    }
  }
  const auto fits = [](double x, std::uint64_t limit) {
    return static_cast<std::uint64_t>(std::nearbyint(x)) <= limit;
  };
  for (const std::uint64_t limit : limits) {
    const double largest = largest_fitting(limit);
    EXPECT_TRUE(fits(largest, limit)) << limit;
    EXPECT_FALSE(fits(std::nextafter(largest, std::numeric_limits<double>::infinity()), limit)) << limit;
  }
}

TEST(Cells, OfIntegersAreSignExtended) {
  bool fits = true;
  const Scaling scaling(fixed(ElementType::int8, CellType::fixed64, 0));
  EXPECT_EQ(to_cell<std::uint64_t>(std::int8_t{-1}, scaling, fits), ~std::uint64_t{0});
  EXPECT_EQ(to_cell<std::uint32_t>(std::int16_t{-2}, scaling, fits), 0xFFFFFFFEu);
  EXPECT_EQ((from_cell<std::int8_t>(std::uint32_t{0x1FF}, scaling)), -1);
}

}  // namespace
}  // namespace peel::detail
