// NaN, infinity, -0.0 and subnormals; values too large for their scale. Fixed cells refuse what they cannot hold and
// say where it is; native and float32 cells pass it on as a dense sum would. Never a silent wrap.
#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "codec/values.h"
#include "peel/peel.h"
#include "refusal.h"

namespace peel::testing {
namespace {

using detail::narrow;
using detail::widen;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <typename T>
class SpecialValues : public ::testing::Test {
 protected:
  static constexpr ElementType kType = detail::ElementOf<T>::value;
  static std::vector<T> ones(std::size_t count, std::size_t step) {
    std::vector<T> x(count);
    for (std::size_t i = 0; i < count; i += step) x[i] = narrow<T>(1.0);
    return x;
  }
};
using Floats = ::testing::Types<float, double, float16, bfloat16>;
TYPED_TEST_SUITE(SpecialValues, Floats);

TYPED_TEST(SpecialValues, FixedCellsNameTheFirstThatIsNotFinite) {
  using T = TypeParam;
  for (const Backend backend : available_backends()) {
    for (const Codec codec : {Codec::packed, Codec::sketch}) {
      for (const CellType cells : {CellType::fixed32, CellType::fixed64}) {
        for (const std::uint32_t grain : {1u, 8u, 64u}) {
          const Plan plan = Plan::make({.elements = 200'000,
                                        .type = this->kType,
                                        .expected_items = 20'000,
                                        .codec = codec,
                                        .cells = cells,
                                        .grain = grain,
                                        .phase = grain / 3,
                                        .scale = 4});
          for (const std::size_t first : {std::size_t{0}, std::size_t{1}, std::size_t{77'777}, std::size_t{199'999}}) {
            std::vector<T> x = this->ones(200'000, 1000);
            x[first] = narrow<T>(first % 2 == 0 ? kNan : -kInfinity);
            for (std::size_t i = first + 1; i < x.size(); i += 5000) x[i] = narrow<T>(kInfinity);
            Message message;
            expect_refusal(ErrorCode::not_finite, "Element " + std::to_string(first) + " is",
                           [&] { encode(plan, x, message, {.backend = backend, .threads = 2}); });
          }
        }
      }
    }
  }
}

TYPED_TEST(SpecialValues, FixedCellsNameItInTheSparseViewAndInRoundOne) {
  using T = TypeParam;
  for (const Backend backend : available_backends()) {
    const Plan plan = Plan::make({.elements = 1000,
                                  .type = this->kType,
                                  .cells = CellType::fixed32,
                                  .grain = 4,
                                  .phase = 1,
                                  .index = Index::bitmap,
                                  .scale = 4});
    const std::vector<std::uint64_t> items = {0, 100, 101};
    std::vector<T> values(12, narrow<T>(1.0));
    values[0] = narrow<T>(kNan);  // outside of the array: the first item has one lane in it
    values[9] = narrow<T>(kInfinity);
    const ConstSparse sparse(items, values.data(), this->kType);
    Message message;
    Support support;
    // Item 101 starts at element 1 + 100 * 4.
    expect_refusal(ErrorCode::not_finite, "Element 402 is",
                   [&] { encode(plan, sparse, message, {.backend = backend}); });
    expect_refusal(ErrorCode::not_finite, "Element 402 is",
                   [&] { encode_index(plan, sparse, support, message, {.backend = backend}); });
    values[9] = narrow<T>(1.0);
    EXPECT_NO_THROW(encode(plan, sparse, message, {.backend = backend}));
  }
}

// Even where the scale rounds every finite value to zero.
TYPED_TEST(SpecialValues, AScaleNeverHidesInfinity) {
  using T = TypeParam;
  for (const Backend backend : available_backends()) {
    for (const std::int32_t scale : {-900, -200, -20, 0, 900}) {
      for (const double bad : {kNan, kInfinity, -kInfinity}) {
        const Plan plan = Plan::make({.elements = 10, .type = this->kType, .cells = CellType::fixed64, .scale = scale});
        std::vector<T> x(10);
        x[6] = narrow<T>(bad);
        Message message;
        expect_refusal(ErrorCode::not_finite, "Element 6", [&] { encode(plan, x, message, {.backend = backend}); });
      }
    }
  }
}

TYPED_TEST(SpecialValues, NativeCellsPassThemOn) {
  using T = TypeParam;
  for (const Backend backend : available_backends()) {
    const Plan plan = Plan::make({.elements = 100, .type = this->kType, .workers = 2, .index = Index::bitmap});
    std::vector<T> a = this->ones(100, 10), b = this->ones(100, 15), out(100);
    a[3] = narrow<T>(kNan);
    a[5] = b[5] = narrow<T>(kInfinity);
    a[6] = narrow<T>(kInfinity);
    b[6] = narrow<T>(-kInfinity);
    Message mine, theirs;
    encode(plan, a, mine, {.backend = backend});
    encode(plan, b, theirs, {.backend = backend});
    merge(plan, mine, theirs, {.backend = backend});
    decode(plan, mine, out, {.execution = {.backend = backend}});
    for (std::size_t i = 0; i < 100; ++i) {
      const double dense = widen(a[i]) + widen(b[i]);
      EXPECT_TRUE(std::isnan(dense) ? std::isnan(widen(out[i])) : widen(out[i]) == dense) << i;
    }
  }
}

// A sketch of floats: the element itself comes back as what it was. (Elements that share a cell with it may turn to NaN
// as well; that is why fixed cells are the default.)
TYPED_TEST(SpecialValues, FloatCellsPassThemOn) {
  using T = TypeParam;
  for (const Backend backend : available_backends()) {
    const Plan plan = Plan::make({.elements = 100,
                                  .type = this->kType,
                                  .expected_items = 10,
                                  .codec = Codec::sketch,
                                  .cells = CellType::float32});
    for (const double special : {kNan, kInfinity, -kInfinity}) {
      std::vector<T> x(100), out(100);
      x[42] = narrow<T>(special);
      Message message;
      encode(plan, x, message, {.backend = backend});
      EXPECT_EQ(decode(plan, message, out, {.execution = {.backend = backend}}).lost, 0u);
      EXPECT_TRUE(std::isnan(special) ? std::isnan(widen(out[42])) : widen(out[42]) == special);
      for (std::size_t i = 0; i < 100; ++i) EXPECT_TRUE(i == 42 || widen(out[i]) == 0) << i;
    }
  }
}

TYPED_TEST(SpecialValues, MinusZeroIsZero) {
  using T = TypeParam;
  for (const Backend backend : available_backends()) {
    for (const Codec codec : {Codec::packed, Codec::sketch}) {
      for (const std::uint32_t grain : {1u, 16u}) {
        const Plan plan = Plan::make({.elements = 1000,
                                      .type = this->kType,
                                      .expected_items = 10,
                                      .codec = codec,
                                      .grain = grain,
                                      .index = Index::bitmap});
        std::vector<T> x(1000, narrow<T>(-0.0)), out(1000, narrow<T>(1.0));
        Message message;
        encode(plan, x, message, {.backend = backend});
        EXPECT_EQ(decode(plan, message, out, {.execution = {.backend = backend}}).items, 0u);
        for (const T value : out) EXPECT_EQ(widen(value), 0);
      }
    }
  }
}

TYPED_TEST(SpecialValues, SubnormalsAreValuesLikeAnyOther) {
  using T = TypeParam;
  std::vector<T> x(1000);
  for (std::size_t i = 0; i < x.size(); i += 7) {  // the smallest there are, by their bits
    const auto bits = static_cast<detail::Bits<T>>(1 + i);
    std::memcpy(&x[i], &bits, sizeof(T));
  }
  for (const Backend backend : available_backends()) {
    for (const Codec codec : {Codec::packed, Codec::sketch}) {
      // A scale at which the smallest is one step; float64's lies past the largest scale.
      const int exponent = std::ilogb(widen(std::bit_cast<T>(detail::Bits<T>{1})));
      if (codec == Codec::sketch && -exponent > 900) continue;
      const Plan plan = Plan::make({.elements = 1000,
                                    .type = this->kType,
                                    .expected_items = 143,
                                    .codec = codec,
                                    .scale = codec == Codec::sketch ? -exponent : 0});
      std::vector<T> out(1000);
      Message message;
      encode(plan, x, message, {.backend = backend});
      const Recovery r = decode(plan, message, out, {.execution = {.backend = backend}});
      EXPECT_EQ(r.lost, 0u);
      for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(widen(out[i]), widen(x[i])) << i;
    }
  }
}

// ---- values too large for their scale

struct Overflowing {
  Plan plan;
  std::vector<float> fits, overflows;
};

Overflowing overflowing(Codec codec, CellType cells, Index index, std::uint32_t workers) {
  const double limit =
      static_cast<double>(((std::uint64_t{1} << (cells == CellType::fixed32 ? 31 : 63)) - 1) / workers);
  const int scale = 8;
  Overflowing out{Plan::make({.elements = 1000,
                              .expected_items = 40,
                              .workers = workers,
                              .codec = codec,
                              .cells = cells,
                              .index = index,
                              .scale = scale}),
                  std::vector<float>(1000), std::vector<float>(1000)};
  const auto most = static_cast<float>(limit / (1 << scale) * 0.99);
  for (std::size_t i = 0; i < 1000; i += 50) out.fits[i] = out.overflows[i + 1] = i % 100 == 0 ? most : -most;
  out.overflows[501] = static_cast<float>(limit / (1 << scale) * 1.01);
  return out;
}

void expect_overflow(const Plan& plan, const Message& message, Backend backend) {
  EXPECT_EQ(message.flags(), kFlagOverflow);
  std::vector<float> x(1000, 7.0f);
  Sparse sparse;
  expect_refusal(ErrorCode::overflow, "smaller scale",
                 [&] { decode(plan, message, x, {.execution = {.backend = backend}}); });
  expect_refusal(ErrorCode::overflow, "smaller scale",
                 [&] { decode(plan, message, sparse, {.execution = {.backend = backend}}); });
  EXPECT_EQ(x, std::vector<float>(1000, 7.0f));
}

TEST(Overflow, IsAFlagThatSurvivesMergingThenAnError) {
  for (const Backend backend : available_backends()) {
    for (const Codec codec : {Codec::packed, Codec::sketch}) {
      for (const CellType cells : {CellType::fixed32, CellType::fixed64}) {
        for (const Index index : {Index::bitmap, Index::bloom, Index::list}) {
          for (const std::uint32_t workers : {2u, 4u, 100'000u}) {
            const Overflowing o = overflowing(codec, cells, index, workers);
            SCOPED_TRACE(o.plan.describe());
            Message good, bad;
            encode(o.plan, o.fits, good, {.backend = backend});
            encode(o.plan, o.overflows, bad, {.backend = backend});
            EXPECT_EQ(good.flags(), 0u);
            expect_overflow(o.plan, bad, backend);
            Message left = good, right = bad;
            merge(o.plan, left, bad, {.backend = backend});
            merge(o.plan, right, good, {.backend = backend});
            expect_overflow(o.plan, left, backend);
            expect_overflow(o.plan, right, backend);
            // And through a file.
            expect_overflow(o.plan, parse(serialise(o.plan, left)).message, backend);
            std::vector<float> out(1000);
            EXPECT_EQ(decode(o.plan, good, out, {.execution = {.backend = backend}}).lost, 0u);
          }
        }
      }
    }
  }
}

// In two rounds only the index is combined by OR: the flag must be in it before the values are packed.
TEST(Overflow, ReachesEveryWorkerWithTheOrOfRoundOne) {
  for (const Backend backend : available_backends()) {
    for (const CellType cells : {CellType::fixed32, CellType::fixed64}) {
      const Overflowing o = overflowing(Codec::packed, cells, Index::bitmap, 2);
      Support supports[2];
      Message messages[2];
      encode_index(o.plan, o.fits, supports[0], messages[0], {.backend = backend});
      encode_index(o.plan, o.overflows, supports[1], messages[1], {.backend = backend});
      for (std::size_t i = 0; i < messages[0].index.size(); ++i) {
        messages[0].index[i] = messages[1].index[i] = messages[0].index[i] | messages[1].index[i];
      }
      for (int w = 0; w < 2; ++w) {
        encode_values(o.plan, supports[w], messages[w], {.backend = backend});
        expect_overflow(o.plan, messages[w], backend);
      }
    }
  }
}

// One value of many, wherever it is and whichever thread has it.
TEST(Overflow, OfOneValueIsSeenInRoundOne) {
  constexpr std::uint64_t kElements = 150'001;
  for (const Backend backend : available_backends()) {
    for (const std::uint32_t grain : {1u, 8u}) {
      const Plan plan = Plan::make({.elements = kElements,
                                    .expected_items = kElements / grain,
                                    .codec = Codec::packed,
                                    .cells = CellType::fixed32,
                                    .grain = grain,
                                    .index = Index::bitmap,
                                    .scale = 8});
      for (const unsigned threads : {1u, 4u}) {
        std::vector<float> x(kElements, 1.0f);
        Support own;
        Message message;
        encode_index(plan, x, own, message, {.backend = backend, .threads = threads});
        EXPECT_EQ(message.flags(), 0u);
        for (const std::uint64_t at :
             {std::uint64_t{0}, std::uint64_t{1023}, std::uint64_t{1024}, kElements / 2, kElements - 1}) {
          x[at] = -1e9f;
          encode_index(plan, x, own, message, {.backend = backend, .threads = threads});
          EXPECT_EQ(message.flags(), kFlagOverflow) << name(backend) << ", " << threads << " threads, element " << at;
          x[at] = 1.0f;
        }
      }
    }
  }
}

// As many workers as the scale was made for cannot wrap, even if all of them send the largest value there is.
TEST(Overflow, NeverHappensAtTheFittedScale) {
  for (const std::uint32_t workers : {1u, 2u, 3u, 7u, 16u}) {
    for (const Codec codec : {Codec::packed, Codec::sketch}) {
      const float largest = 0.7f;
      const Plan plan = Plan::make({.elements = 64,
                                    .expected_items = 32,
                                    .workers = workers,
                                    .codec = codec,
                                    .cells = CellType::fixed32,
                                    .index = Index::bitmap,
                                    .scale = fit_scale(largest, CellType::fixed32, workers)});
      std::vector<float> x(64), out(64);
      for (std::size_t i = 0; i < 64; i += 2) x[i] = i % 4 == 0 ? largest : -largest;
      Message sum(plan);
      for (std::uint32_t w = 0; w < workers; ++w) {
        Message mine;
        encode(plan, x, mine);
        merge(plan, sum, mine);
      }
      EXPECT_EQ(decode(plan, sum, out).lost, 0u);
      for (std::size_t i = 0; i < 64; ++i)
        EXPECT_NEAR(out[i], static_cast<double>(x[i]) * workers, plan.error_bound() + 1e-6);
    }
  }
}

// 100,000 workers share 31 bits: 21,474 steps for each. Adding up one message as often must not wrap.
TEST(Overflow, WorkersPast65535AddUp) {
  const std::uint32_t workers = 100'000;
  const Plan plan = Plan::make({.elements = 8,
                                .expected_items = 2,
                                .workers = workers,
                                .codec = Codec::sketch,
                                .index = Index::bitmap,
                                .scale = fit_scale(1.0, CellType::fixed32, workers)});
  std::vector<float> x = {0, 1.0f, 0, 0, -1.0f, 0, 0, 0}, out(8);
  Message mine, sum(plan);
  encode(plan, x, mine);
  ASSERT_EQ(mine.flags(), 0u);
  for (std::uint32_t w = 0; w < workers; ++w) merge(plan, sum, mine);
  EXPECT_EQ(decode(plan, sum, out).lost, 0u);
  EXPECT_EQ(out[1], 100'000.0f);
  EXPECT_EQ(out[4], -100'000.0f);
}

}  // namespace
}  // namespace peel::testing
