// The arithmetic of values: 16-bit floats against their definition, sums in the type itself, fixed cells, signs.
#include "plan/element_values.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace peel::detail {
namespace {

// ---- 16-bit floats

template <typename Format>
void expect_known(std::initializer_list<std::pair<std::uint16_t, double>> known) {
  for (const auto& [bits, value] : known) {
    EXPECT_EQ(widen16<Format>(bits), value) << bits;
    EXPECT_EQ(narrow16<Format>(value), bits) << value;
    EXPECT_EQ(widen16<Format>(bits | 0x8000), -value) << bits;
    EXPECT_EQ(narrow16<Format>(-value), bits | 0x8000) << value;
  }
}

TEST(Float16, KnownValues) {
  expect_known<HalfFormat>({{0x0000, 0.0},
                            {0x3C00, 1.0},
                            {0x3555, 0.333251953125},
                            {0x7BFF, 65504.0},
                            {0x0400, 0x1p-14},
                            {0x0001, 0x1p-24},
                            {0x03FF, 0x1.FF8p-15},
                            {0x7C00, std::numeric_limits<double>::infinity()}});
}

TEST(BFloat16, KnownValues) {
  expect_known<BrainFormat>({{0x0000, 0.0},
                             {0x3F80, 1.0},
                             {0x4049, 3.140625},
                             {0x0080, 0x1p-126},
                             {0x0001, 0x1p-133},
                             {0x7F80, std::numeric_limits<double>::infinity()}});
}

TEST(BFloat16, IsTheUpperHalfOfAFloat) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto whole = std::bit_cast<float>(bits << 16);
    const double wide = widen16<BrainFormat>(static_cast<std::uint16_t>(bits));
    ASSERT_TRUE(std::isnan(whole) ? std::isnan(wide) : wide == static_cast<double>(whole)) << bits;
  }
}

// Between two neighbours: what is nearer, and the even one of equally near.
template <typename Format>
void expect_rounding(std::uint16_t infinity) {
  for (std::uint16_t low = 0; low + 1 < infinity; ++low) {
    const double a = widen16<Format>(low);
    const double b = widen16<Format>(static_cast<std::uint16_t>(low + 1));
    ASSERT_LT(a, b);
    ASSERT_EQ(narrow16<Format>(a), low);
    const double middle = (a + b) / 2;
    ASSERT_EQ(narrow16<Format>(middle), low % 2 == 0 ? low : low + 1) << low;
    ASSERT_EQ(narrow16<Format>(std::nextafter(middle, 0.0)), low) << low;
    ASSERT_EQ(narrow16<Format>(std::nextafter(middle, b)), low + 1) << low;
  }
  const double largest = widen16<Format>(static_cast<std::uint16_t>(infinity - 1));
  const double step = largest - widen16<Format>(static_cast<std::uint16_t>(infinity - 2));
  EXPECT_EQ(narrow16<Format>(std::nextafter(largest + step / 2, 0.0)), infinity - 1);
  EXPECT_EQ(narrow16<Format>(largest + step / 2), infinity);
  EXPECT_EQ(narrow16<Format>(std::numeric_limits<double>::max()), infinity);
  EXPECT_EQ(narrow16<Format>(std::numeric_limits<double>::denorm_min()), 0);
  EXPECT_TRUE(std::isnan(widen16<Format>(narrow16<Format>(std::numeric_limits<double>::quiet_NaN()))));
}

TEST(Float16, RoundsToTheNearestAndTiesToEven) { expect_rounding<HalfFormat>(0x7C00); }
TEST(BFloat16, RoundsToTheNearestAndTiesToEven) { expect_rounding<BrainFormat>(0x7F80); }

// ---- sums in the type itself

TEST(Addition, WrapsIntegersAtTheirWidth) {
  EXPECT_EQ(add<std::int8_t>(127, 1), -128);
  EXPECT_EQ(add<std::int16_t>(-32768, -1), 32767);
  EXPECT_EQ(add<std::int32_t>(0x7FFFFFFF, 1), std::numeric_limits<std::int32_t>::min());
  EXPECT_EQ(add<std::int64_t>(std::numeric_limits<std::int64_t>::max(), 1), std::numeric_limits<std::int64_t>::min());
}

TEST(Addition, RoundsOnce) {
  const auto half = [](double x) { return narrow<float16>(x); };
  EXPECT_EQ(widen(add(half(2048), half(1))), 2048);  // a tie, to even
  EXPECT_EQ(widen(add(half(2048), half(3))), 2052);  // a tie, to even
  EXPECT_EQ(widen(add(half(65504), half(65504))), std::numeric_limits<double>::infinity());
  EXPECT_EQ(add(0.1f, 0.2f), 0.1f + 0.2f);
}

// ---- fixed cells

TEST(FixedCells, RoundToTheNearestAndTiesToEven) {
  const double values[] = {0.0, 0.4, 0.5, 0.6, 1.5, 2.5, 3.49, 2147483646.5, 2147483647.0};
  const std::uint32_t cells[] = {0, 0, 0, 1, 2, 2, 3, 2147483646, 2147483647};
  for (std::size_t i = 0; i < std::size(values); ++i) {
    EXPECT_EQ(fixed_cell<std::uint32_t>(values[i]), cells[i]) << values[i];
    EXPECT_EQ(fixed_cell<std::uint32_t>(-values[i]), 0u - cells[i]) << values[i];
    EXPECT_EQ(fixed_cell<std::uint64_t>(values[i]), cells[i]) << values[i];
    EXPECT_EQ(fixed_cell<std::uint64_t>(-values[i]), std::uint64_t{0} - cells[i]) << values[i];
  }
  EXPECT_EQ(fixed_cell<std::uint64_t>(0x1p62), std::uint64_t{1} << 62);
}

TEST(FixedCells, HaveSignedValues) {
  EXPECT_EQ(fixed_value(std::uint32_t{3}, 0.25), 0.75);
  EXPECT_EQ(fixed_value(0xFFFFFFFFu, 0.5), -0.5);
  EXPECT_EQ(fixed_value(0x80000000u, 1), -0x1p31);
  EXPECT_EQ(fixed_value(~std::uint64_t{0}, 2), -2);
}

TEST(FixedCells, ChangeTheirSignByABit) {
  for (std::uint32_t bit = 0; bit < 32; ++bit) {
    for (const std::uint32_t signs : {0u, 1u << bit, ~(1u << bit), ~0u}) {
      const bool negative = (signs >> bit & 1) != 0;
      EXPECT_EQ(with_sign<std::uint32_t>(7, signs, bit), negative ? 0u - 7 : 7u);
      EXPECT_EQ(with_sign<std::uint64_t>(7, signs, bit), negative ? std::uint64_t{0} - 7 : 7u);
      EXPECT_EQ(with_sign(1.5f, signs, bit), negative ? -1.5f : 1.5f);
      EXPECT_EQ(std::signbit(with_sign(0.0f, signs, bit)), negative);
    }
  }
}

}  // namespace
}  // namespace peel::detail
