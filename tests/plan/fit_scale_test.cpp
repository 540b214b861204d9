// fit_scale: the largest scale at which the sum over all workers cannot wrap. Checked against its definition in exact
// arithmetic (long double holds 64 bits of a product by a power of two without rounding).
#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <limits>

#include "peel/plan.h"
#include "refusal.h"

namespace peel::testing {
namespace {

constexpr std::uint32_t kMostWorkers = 0x7FFFFFFEu;

std::uint64_t limit_of(CellType cells, std::uint32_t workers) {
  return ((std::uint64_t{1} << (cells == CellType::fixed32 ? 31 : 63)) - 1) / workers;
}

bool fits(double value, std::int32_t scale, std::uint64_t limit) {
  return std::nearbyint(std::ldexp(static_cast<long double>(value), scale)) <= static_cast<long double>(limit);
}

TEST(FitScale, IsTheLargestThatFits) {
  const double values[] = {1.0,
                           0.5,
                           2.0,
                           0.1,
                           3.0,
                           1e-14,
                           0.099999,
                           1e10,
                           65504.0,
                           FLT_MAX,
                           FLT_MIN,
                           FLT_TRUE_MIN,
                           std::nextafter(1.0, 2.0),
                           std::nextafter(1.0, 0.0),
                           2147483647.0,
                           2147483648.0,
                           1e-200,
                           1e200};
  for (const CellType cells : {CellType::fixed32, CellType::fixed64}) {
    for (const std::uint32_t workers : {1u, 2u, 3u, 4u, 7u, 1000u, 65'535u, 65'536u, 1u << 20, kMostWorkers}) {
      const std::uint64_t limit = limit_of(cells, workers);
      for (const double value : values) {
        const std::int32_t scale = fit_scale(value, cells, workers);
        EXPECT_TRUE(fits(value, scale, limit)) << value << " for " << workers;
        if (scale < 900) {
          EXPECT_FALSE(fits(value, scale + 1, limit)) << value << " for " << workers;
        }
        EXPECT_EQ(fit_scale(-value, cells, workers), scale);
      }
    }
  }
}

TEST(FitScale, KnownValues) {
  EXPECT_EQ(fit_scale(1.0, CellType::fixed32, 1), 30);  // 2^30 <= 2^31 - 1
  EXPECT_EQ(fit_scale(1.0, CellType::fixed32, 2), 29);
  EXPECT_EQ(fit_scale(1.0, CellType::fixed32, 3), 29);
  EXPECT_EQ(fit_scale(1.0, CellType::fixed32, 4), 28);
  EXPECT_EQ(fit_scale(1.0, CellType::fixed64, 1), 62);
  EXPECT_EQ(fit_scale(1.0, CellType::fixed32, kMostWorkers), 0);
  EXPECT_EQ(fit_scale(0.0, CellType::fixed32, 4), 0);
  EXPECT_EQ(fit_scale(-0.0, CellType::fixed64, 4), 0);
}

TEST(FitScale, SubnormalsFitAtTheLargestScaleThereIs) {
  EXPECT_EQ(fit_scale(std::numeric_limits<double>::denorm_min(), CellType::fixed32, 1), 900);
  EXPECT_EQ(fit_scale(DBL_MIN, CellType::fixed64, kMostWorkers), 900);
  EXPECT_EQ(fit_scale(static_cast<double>(FLT_TRUE_MIN), CellType::fixed32, 1), 30 + 149);
}

// A plan's scale goes down to -900. A value that would need less is refused: any scale would be a wrong one.
TEST(FitScale, RefusesWhatNoScaleCanHold) {
  const double most_in_32_bits = std::ldexp(2147483647.0, 900);
  EXPECT_EQ(fit_scale(most_in_32_bits, CellType::fixed32, 1), -900);
  expect_refusal(ErrorCode::overflow, "too large",
                 [&] { (void)fit_scale(std::nextafter(most_in_32_bits * 1.001, 1e300), CellType::fixed32, 1); });
  expect_refusal(ErrorCode::overflow, "too large", [] { (void)fit_scale(DBL_MAX, CellType::fixed32, 1); });
  expect_refusal(ErrorCode::overflow, "too large", [] { (void)fit_scale(DBL_MAX, CellType::fixed64, kMostWorkers); });
  EXPECT_NO_THROW((void)fit_scale(static_cast<double>(FLT_MAX), CellType::fixed32, kMostWorkers));
}

TEST(FitScale, EveryScaleMakesAPlan) {
  for (const double value : {1e-300, 1e-30, 1.0, 1e30, 1e200}) {
    const std::int32_t scale = fit_scale(value, CellType::fixed64, 8);
    EXPECT_NO_THROW((void)Plan::make(
        {.elements = 10, .type = ElementType::float64, .workers = 8, .cells = CellType::fixed64, .scale = scale}));
  }
}

TEST(FitScale, RefusesWhatHasNoScale) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  expect_refusal(ErrorCode::not_finite, "NaN", [&] { (void)fit_scale(nan, CellType::fixed32, 1); });
  expect_refusal(ErrorCode::not_finite, "infinity", [&] { (void)fit_scale(infinity, CellType::fixed64, 1); });
  expect_refusal(ErrorCode::not_finite, "infinity", [&] { (void)fit_scale(-infinity, CellType::fixed64, 1); });
  expect_refusal(ErrorCode::invalid_argument, "worker", [] { (void)fit_scale(1, CellType::fixed32, 0); });
  for (const CellType cells : {CellType::automatic, CellType::native, CellType::float32}) {
    expect_refusal(ErrorCode::invalid_argument, "fixed32", [&] { (void)fit_scale(1, cells, 1); });
  }
}

TEST(ErrorBound, IsHalfAStepOfEveryWorker) {
  const auto bound = [](CellType cells, ElementType type, std::uint32_t workers, std::int32_t scale) {
    return Plan::make({.elements = 8, .type = type, .workers = workers, .cells = cells, .scale = scale}).error_bound();
  };
  EXPECT_EQ(bound(CellType::fixed32, ElementType::float32, 4, 10), 4 * std::ldexp(1.0, -11));
  EXPECT_EQ(bound(CellType::fixed64, ElementType::float64, 1, -3), 4.0);
  EXPECT_EQ(bound(CellType::native, ElementType::float32, 4, 0), 0.0);
  EXPECT_EQ(bound(CellType::float32, ElementType::float32, 4, 0), 0.0);
  EXPECT_EQ(bound(CellType::fixed32, ElementType::int16, 4, 0), 0.0);
}

}  // namespace
}  // namespace peel::testing
