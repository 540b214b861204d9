// Values with twelve orders of magnitude in one array, whose sums do depend on the order: each strategy keeps what its
// report promises of them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "allreduce/workers.h"
#include "codec/values.h"
#include "draw.h"
#include "peel/allreduce.h"
#include "scale.h"

namespace peel::testing {
namespace {

template <typename T>
using Gradients = std::vector<std::vector<T>>;  // of each worker

// Magnitudes from 1e-13 to 1e-1, some elements zero on some workers.
template <typename T>
Gradients<T> wide_gradients(unsigned workers, std::size_t elements) {
  SeededDraw random(17);
  Gradients<T> all(workers, std::vector<T>(elements));
  for (auto& x : all) {
    for (T& value : x) {
      if (random.below(3) != 0) continue;
      const double exponent = -13.0 + 12.0 * static_cast<double>(random.below(1'000'000)) / 1e6;
      value = detail::narrow<T>((random.below(2) != 0 ? -1 : 1) * std::pow(10.0, exponent));
    }
  }
  return all;
}

// The pieces of real gradients in tests/data, all four models behind one another.
Gradients<float> real_gradients() {
  constexpr std::size_t kElements = 2048;
  Gradients<float> workers(4);
  for (const char* model : {"ncf", "lstm", "bert", "vgg"}) {
    std::ifstream file(std::string(PEEL_TEST_DIR) + "/data/" + model + ".values.f32", std::ios::binary);
    for (auto& x : workers) {
      std::vector<float> part(kElements);
      file.read(reinterpret_cast<char*>(part.data()), kElements * sizeof(float));
      EXPECT_TRUE(file.good()) << model;
      x.insert(x.end(), part.begin(), part.end());
    }
  }
  return workers;
}

template <typename T>
struct Summed {
  Gradients<T> sums;
  std::vector<Report> reports;  // of the last step
};

template <typename T>
Summed<T> sum_between_threads(const Gradients<T>& all, Strategy strategy, CellType cells = CellType::automatic) {
  Summed<T> result{all, std::vector<Report>(all.size())};
  const Errors errors = on_each(static_cast<unsigned>(all.size()), [&](Communicator& communicator) {
    State state({.strategy = strategy, .cells = cells, .link = kSlowLink, .chunk_bytes = 8192, .timeout = kPatient});
    for (int step = 0; step < 3; ++step) {
      const unsigned rank = communicator.rank();
      result.sums[rank] = all[rank];
      result.reports[rank] = allreduce(communicator, result.sums[rank], state);
    }
  });
  EXPECT_EQ(first_error(errors), "");
  for (const auto& sum : result.sums) {
    EXPECT_EQ(std::memcmp(sum.data(), result.sums[0].data(), sum.size() * sizeof(T)), 0)
        << "workers hold different sums";
  }
  return result;
}

// Half the distance to the next value of the type, upwards.
template <typename T>
double half_ulp(T value) {
  using U = detail::Bits<T>;
  constexpr U kMagnitude = static_cast<U>(~U{0}) >> 1;
  const auto magnitude = static_cast<U>(std::bit_cast<U>(value) & kMagnitude);
  return 0.5 *
         (detail::widen(std::bit_cast<T>(static_cast<U>(magnitude + 1))) - detail::widen(std::bit_cast<T>(magnitude)));
}

// Relative rounding error of one addition.
template <typename T>
constexpr double kUnitRoundoff = 0x1p-24;
template <>
constexpr double kUnitRoundoff<double> = 0x1p-53;
template <>
constexpr double kUnitRoundoff<float16> = 0x1p-11;
template <>
constexpr double kUnitRoundoff<bfloat16> = 0x1p-8;

template <typename T>
long double true_sum(const Gradients<T>& all, std::size_t i) {
  long double sum = 0;
  for (const auto& x : all) sum += detail::widen(x[i]);
  return sum;
}
template <typename T>
double magnitude_sum(const Gradients<T>& all, std::size_t i) {
  double sum = 0;
  for (const auto& x : all) sum += std::fabs(detail::widen(x[i]));
  return sum;
}

template <typename T>
class RealValues : public ::testing::Test {};
using Floats = ::testing::Types<float, double, float16, bfloat16>;
TYPED_TEST_SUITE(RealValues, Floats);

template <typename T>
std::vector<Gradients<T>> inputs() {
  std::vector<Gradients<T>> all;
  for (const unsigned workers : {2u, 3u, 7u}) all.push_back(wide_gradients<T>(workers, scaled(10'000, 5'000)));
  if constexpr (std::is_same_v<T, float>) all.push_back(real_gradients());
  return all;
}

// What any order of additions in the type itself may give.
TYPED_TEST(RealValues, DenseAndPackedAreAsExactAsADenseSum) {
  using T = TypeParam;
  for (const Gradients<T>& all : inputs<T>()) {
    for (const Strategy strategy : {Strategy::dense, Strategy::packed}) {
      const Summed<T> result = sum_between_threads(all, strategy);
      EXPECT_EQ(result.reports[0].exactness, Exactness::as_dense);
      for (std::size_t i = 0; i < all[0].size(); ++i) {
        // Each of the W-1 additions rounds a partial sum that is no larger than the sum of magnitudes; in the 16-bit
        // types a value below their smallest normal number may also be off by half of the least step.
        const double least_step = sizeof(T) == 2 ? half_ulp(T{}) : 0;
        const auto additions = static_cast<double>(all.size() - 1);
        const double bound = additions * (1.01 * kUnitRoundoff<T> * magnitude_sum(all, i) *
                                          (1 + additions * kUnitRoundoff<T>)+least_step);
        const double off = static_cast<double>(std::fabs(detail::widen(result.sums[0][i]) - true_sum(all, i)));
        ASSERT_LE(off, bound) << name(strategy) << ", element " << i;
      }
      if (all.size() == 2) {  // one addition: no other order exists
        for (std::size_t i = 0; i < all[0].size(); ++i) {
          const T dense = detail::add(all[0][i], all[1][i]);
          // An element that is -0.0 everywhere is no item, and becomes 0.0.
          ASSERT_EQ(detail::widen(result.sums[0][i]), detail::widen(dense)) << name(strategy) << ", element " << i;
        }
      }
    }
  }
}

TYPED_TEST(RealValues, SplitAndGatherAddInRankOrderAndRoundOnce) {
  using T = TypeParam;
  for (const Gradients<T>& all : inputs<T>()) {
    for (const Strategy strategy : {Strategy::split, Strategy::gather}) {
      const Summed<T> result = sum_between_threads(all, strategy);
      EXPECT_EQ(result.reports[0].exactness, Exactness::rounded_once) << name(result.reports[0].strategy);
      for (std::size_t i = 0; i < all[0].size(); ++i) {
        T expected;
        if constexpr (std::is_same_v<T, double>) {
          expected = static_cast<double>(true_sum(all, i));  // 64 bits of mantissa: exact enough to round once
          const double off = std::fabs(expected - result.sums[0][i]);
          ASSERT_LE(off, 0x1p-52 * std::fabs(expected)) << i;
          continue;
        }
        double sum = 0;
        for (const auto& x : all) sum += detail::widen(x[i]);
        expected = detail::narrow<T>(sum);
        ASSERT_EQ(detail::widen(result.sums[0][i]), detail::widen(expected)) << name(strategy) << ", element " << i;
      }
      const Summed<T> again = sum_between_threads(all, strategy);
      EXPECT_EQ(std::memcmp(again.sums[0].data(), result.sums[0].data(), all[0].size() * sizeof(T)), 0)
          << "another run gave other bits";
    }
  }
}

TYPED_TEST(RealValues, SketchKeepsTheBoundItReports) {
  using T = TypeParam;
  for (const Gradients<T>& all : inputs<T>()) {
    for (const CellType cells : {CellType::automatic, CellType::fixed64}) {
      const Summed<T> result = sum_between_threads(all, Strategy::sketch, cells);
      const Report& report = result.reports[0];
      EXPECT_EQ(report.exactness, Exactness::fixed_point);
      EXPECT_EQ(report.lost, 0u);
      ASSERT_GT(report.error_bound, 0);
      EXPECT_EQ(report.error_bound, std::ldexp(static_cast<double>(all.size()), -report.scale - 1));
      double worst = 0;
      for (std::size_t i = 0; i < all[0].size(); ++i) {
        const double off = static_cast<double>(std::fabs(detail::widen(result.sums[0][i]) - true_sum(all, i)));
        ASSERT_LE(off, report.error_bound + half_ulp(result.sums[0][i]) * (1 + 1e-9)) << "element " << i;
        worst = std::max(worst, off);
      }
      EXPECT_LT(report.error_bound, 1e-6) << "a bound as large as the values says nothing";
      if (cells == CellType::automatic && sizeof(T) == 4) {
        EXPECT_GT(worst, report.error_bound / 1000);
      }
    }
  }
}

}  // namespace
}  // namespace peel::testing
