// NaN or infinity on one worker: every worker gets what a dense sum gives, there and everywhere else.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "allreduce/known_gradients.h"
#include "allreduce/small_world.h"
#include "allreduce/workers.h"
#include "peel/allreduce.h"

namespace peel::testing {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Planted {
  unsigned worker;
  std::uint64_t element;
  double value;
};
// In the first and the last element, in zeros and beside others, in several chunks; infinities that cancel to NaN.
const std::vector<Planted> kPlanted = {{0, 0, kNan},          {1, 4999, kInfinity}, {2, 2500, -kInfinity},
                                       {0, 1300, kInfinity},  {1, 1300, kInfinity}, {0, 1400, kInfinity},
                                       {2, 1400, -kInfinity}, {2, 64, kNan}};

template <typename T>
void plant(std::vector<T>& x, unsigned worker) {
  for (const Planted& one : kPlanted) {
    if (one.worker == worker) x[one.element] = detail::narrow<T>(one.value);
  }
}

template <typename T>
std::vector<T> elements_of(const KnownGradient& gradient) {
  std::vector<T> x(gradient.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = element_of<T>(gradient[i]);
  return x;
}

template <typename T>
void expect_dense_sum(const KnownStep& known, const std::vector<T>& x, const std::string& what) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    double expected = detail::widen(element_of<T>(known.sum[i]));
    for (const Planted& one : kPlanted) {
      if (one.element == i) expected += one.value;
    }
    const double found = detail::widen(x[i]);
    ASSERT_TRUE(found == expected || (std::isnan(found) && std::isnan(expected)))
        << what << ", element " << i << ": " << found << " is not " << expected;
  }
}

template <typename T>
class NotFinite : public ::testing::Test {};
using Floats = ::testing::Types<float, double, float16, bfloat16>;
TYPED_TEST_SUITE(NotFinite, Floats);

// In the second step: before it, and after it, everything is ordinary.
TYPED_TEST(NotFinite, EveryWorkerGetsWhatADenseSumGives) {
  using T = TypeParam;
  constexpr ElementType kType = detail::ElementOf<T>::value;
  for (const Strategy strategy :
       {Strategy::automatic, Strategy::dense, Strategy::packed, Strategy::sketch, Strategy::split, Strategy::gather}) {
    for (const int bad_step : {0, 1}) {
      SeededDraw random(4);
      const KnownStep known = KnownStep::draw({.elements = 5000, .type = kType}, 3, random);
      const Errors errors = on_each(3, [&](Communicator& communicator) {
        State state({.strategy = strategy, .link = kSlowLink, .chunk_bytes = 4096, .timeout = kPatient});
        for (int step = 0; step < 3; ++step) {
          std::vector<T> x = elements_of<T>(known.workers[communicator.rank()]);
          if (step != bad_step) {
            const Report report = allreduce(communicator, x, state);
            EXPECT_EQ(report.not_finite, 0u);
            EXPECT_EQ(x.size(), known.sum.size());
            for (std::size_t i = 0; i < x.size(); ++i) {
              ASSERT_EQ(detail::widen(x[i]), detail::widen(element_of<T>(known.sum[i]))) << "step " << step;
            }
            continue;
          }
          plant(x, communicator.rank());
          const Report report = allreduce(communicator, x, state);
          expect_dense_sum(known, x, std::string(name(strategy)));
          EXPECT_EQ(report.lost, 0u);
          if (strategy == Strategy::sketch) {
            EXPECT_GE(report.not_finite, 3u) << "chunks that were redone";
          }
        }
      });
      EXPECT_EQ(first_error(errors), "") << name(strategy);
    }
  }
}

TYPED_TEST(NotFinite, TheSparseViewToo) {
  using T = TypeParam;
  constexpr ElementType kType = detail::ElementOf<T>::value;
  for (const Strategy strategy :
       {Strategy::automatic, Strategy::packed, Strategy::sketch, Strategy::split, Strategy::gather}) {
    const Errors errors = on_each(3, [&](Communicator& communicator) {
      State state({.strategy = strategy, .grain = 4, .elements = 1000, .link = kSlowLink, .timeout = kPatient});
      for (int step = 0; step < 2; ++step) {
        // Item 10 + rank of each worker, item 100 of all; worker 1 has NaN in the latter.
        std::vector<T> values(8, detail::narrow<T>(1.0));
        if (communicator.rank() == 1) values[6] = detail::narrow<T>(kNan);
        const std::vector<std::uint64_t> items = {10 + communicator.rank(), 100};
        Sparse sum;
        allreduce(communicator, ConstSparse(items, values.data(), kType), sum, state);
        ASSERT_EQ(sum.items, (std::vector<std::uint64_t>{10, 11, 12, 100})) << name(strategy);
        const auto sums = sum.values_as<T>();
        for (std::size_t i = 0; i < 16; ++i) {
          const double found = detail::widen(sums[i]);
          if (i == 14) {
            EXPECT_TRUE(std::isnan(found)) << name(strategy);
          } else {
            EXPECT_EQ(found, i < 12 ? 1.0 : 3.0) << name(strategy) << ", value " << i;
          }
        }
      }
    });
    EXPECT_EQ(first_error(errors), "") << name(strategy);
  }
}

// Finite, but no fixed-point number: the sum is as dense gives it, in this step and in the next one, and nobody says
// that it was not finite.
TEST(LargestDoubles, NoScaleReachesThemAndTheSumIsRightAllTheSame) {
  for (const Strategy strategy : {Strategy::sketch, Strategy::packed, Strategy::split, Strategy::automatic}) {
    const Errors errors = on_each(3, [&](Communicator& communicator) {
      std::string heard;
      State state({.strategy = strategy, .link = kSlowLink, .timeout = kPatient, .log = [&](std::string_view sentence) {
                     heard += sentence;
                   }});
      for (int step = 0; step < 4; ++step) {
        std::vector<double> x(3000, 0.0);
        x[7] = step == 0 ? 1.0 : 1e300;
        x[9] = 1.0;
        allreduce(communicator, x, state);
        EXPECT_EQ(x[7], step == 0 ? 3.0 : 1e300 + 1e300 + 1e300) << name(strategy) << ", step " << step;
        EXPECT_EQ(x[9], 3.0) << name(strategy) << ", step " << step;
      }
      EXPECT_EQ(state.totals().not_finite, 0u) << name(strategy);
      EXPECT_EQ(heard.find("NaN"), std::string::npos) << heard;
      EXPECT_EQ(heard.find("fit no fixed-point scale") != std::string::npos, strategy == Strategy::sketch) << heard;
    });
    EXPECT_EQ(first_error(errors), "") << name(strategy);
  }
}

// Sums past the largest float overflow to infinity, as they do in a dense sum.
TEST(LargestFloats, OverflowToInfinity) {
  for (const Strategy strategy :
       {Strategy::dense, Strategy::packed, Strategy::sketch, Strategy::split, Strategy::gather}) {
    const Errors errors = on_each(2, [&](Communicator& communicator) {
      State state({.strategy = strategy, .link = kSlowLink, .timeout = kPatient});
      for (int step = 0; step < 2; ++step) {
        std::vector<float> x(100, 0.0f);
        x[3] = 3e38f;
        x[4] = -3e38f;
        allreduce(communicator, x, state);
        EXPECT_EQ(x[3], std::numeric_limits<float>::infinity()) << name(strategy);
        EXPECT_EQ(x[4], -std::numeric_limits<float>::infinity()) << name(strategy);
        EXPECT_EQ(x[5], 0.0f);
      }
    });
    EXPECT_EQ(first_error(errors), "") << name(strategy);
  }
}

}  // namespace
}  // namespace peel::testing
