// NaN, infinity, values too large for their scale, and floats of any size. Fixed cells report what they cannot hold,
// in the status and, for overflow, in the message; native cells pass everything on.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "cuda/checked_device.h"
#include "cuda/patterned_gradient.h"
#include "refusal.h"

namespace peel::testing {
namespace {

using detail::narrow;
using detail::widen;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <typename T>
void set(Elements& x, std::uint64_t element, double value) {
  x.as<T>()[element] = narrow<T>(value);
}

template <typename T>
class CudaSpecialValues : public ::testing::Test {
 protected:
  static constexpr ElementType kType = detail::ElementOf<T>::value;
};
using Floats = ::testing::Types<float, double, float16, bfloat16>;
TYPED_TEST_SUITE(CudaSpecialValues, Floats);

TYPED_TEST(CudaSpecialValues, FixedCellsReportWhatIsNotFinite) {
  using T = TypeParam;
  for (const Codec codec : {Codec::packed, Codec::sketch}) {
    for (const CellType cells : {CellType::fixed32, CellType::fixed64}) {
      for (const std::uint32_t grain : {1u, 8u, 64u}) {
        const Plan plan = Plan::make({.elements = 20'000,
                                      .type = this->kType,
                                      .expected_items = 2000,
                                      .codec = codec,
                                      .cells = cells,
                                      .grain = grain,
                                      .phase = grain / 3,
                                      .index = Index::bitmap,
                                      .scale = 4});
        for (const double bad : {kNan, kInfinity, -kInfinity}) {
          Elements x = patterned({.type = this->kType, .elements = 20'000, .density = 0.01, .seed = 31});
          set<T>(x, bad != bad ? 0 : 19'999, bad);
          DeviceCodec device(plan, 2000, {.offset = 1});
          const cuda::Status status = device.encode(x.view());
          EXPECT_NE(status.flags & cuda::kNotFinite, 0u) << plan.describe();
          expect_refusal(ErrorCode::not_finite, "", [&] { cuda::check(plan, status); });
          if (codec == Codec::packed) {
            EXPECT_NE(device.encode_index(x.view()).flags & cuda::kNotFinite, 0u) << plan.describe();
          }
        }
      }
    }
  }
}

// Even where the scale rounds every finite value to zero.
TYPED_TEST(CudaSpecialValues, AScaleNeverHidesInfinity) {
  using T = TypeParam;
  for (const std::int32_t scale : {-900, -20, 0, 900}) {
    const Plan plan = Plan::make(
        {.elements = 1000, .type = this->kType, .cells = CellType::fixed64, .index = Index::bitmap, .scale = scale});
    Elements x(this->kType, 1000, 0, std::byte{0});
    set<T>(x, 600, kInfinity);
    EXPECT_NE(DeviceCodec(plan, 10, {}).encode(x.view()).flags & cuda::kNotFinite, 0u) << scale;
  }
}

TYPED_TEST(CudaSpecialValues, NativeCellsPassThemOn) {
  using T = TypeParam;
  const Plan plan = Plan::make({.elements = 5000, .type = this->kType, .grain = 2, .index = Index::bitmap});
  Elements x = patterned({.type = this->kType, .elements = 5000, .density = 0.05, .seed = 32});
  set<T>(x, 3, kNan);
  set<T>(x, 500, kInfinity);
  set<T>(x, 4999, -kInfinity);
  set<T>(x, 700, -0.0);
  CheckedDevice(plan).round_trip(x);
}

TYPED_TEST(CudaSpecialValues, MinusZeroIsZeroAndSubnormalsAreNot) {
  using T = TypeParam;
  Elements x(this->kType, 3000, 0, std::byte{0});
  for (std::uint64_t e = 0; e < 3000; ++e) {
    if (e % 3 == 0) {
      set<T>(x, e, -0.0);
    } else if (e % 7 == 0) {  // the smallest there are, by their bits
      x.as<T>()[e] = std::bit_cast<T>(static_cast<detail::Bits<T>>(e));
    }
  }
  for (const std::uint32_t grain : {1u, 2u, 32u}) {
    const Plan plan = Plan::make({.elements = 3000, .type = this->kType, .grain = grain, .index = Index::bitmap});
    CheckedDevice(plan).round_trip(x);
  }
  const int exponent = std::ilogb(widen(std::bit_cast<T>(detail::Bits<T>{1})));
  if (-exponent > 900) return;  // float64's scale would be past the largest
  const Plan plan = Plan::make({.elements = 3000,
                                .type = this->kType,
                                .expected_items = 300,
                                .codec = Codec::sketch,
                                .index = Index::bitmap,
                                .scale = -exponent});
  CheckedDevice(plan).round_trip(x);
}

// Values of real gradients, most of them not on the grid of the scale: the device rounds as the CPU does.
TYPED_TEST(CudaSpecialValues, RoundsToTheScaleAsTheCpuDoes) {
  using T = TypeParam;
  SeededDraw draw(33);
  Elements x(this->kType, 30'000, 0, std::byte{0});
  for (std::uint64_t e = 0; e < 30'000; e += 1 + draw.below(20)) {
    const double magnitude = std::ldexp(1 + static_cast<double>(draw.bits() >> 12) * 0x1p-52,
                                        -static_cast<int>(draw.below(this->kType == ElementType::float16 ? 14 : 40)));
    set<T>(x, e, draw.below(2) == 0 ? magnitude : -magnitude);
  }
  // Ties, which go to even.
  for (std::uint64_t e = 0; e < 64; ++e) set<T>(x, 1000 + e, (static_cast<double>(e) + 0.5) / 64);
  for (const Codec codec : {Codec::packed, Codec::sketch}) {
    for (const CellType cells : {CellType::fixed32, CellType::fixed64}) {
      for (const std::int32_t scale : {6, 12, fit_scale(2, cells, 1)}) {
        const Plan plan = Plan::make({.elements = 30'000,
                                      .type = this->kType,
                                      .expected_items = 4000,
                                      .codec = codec,
                                      .cells = cells,
                                      .grain = 2,
                                      .index = Index::bitmap,
                                      .scale = scale});
        CheckedDevice(plan).round_trip(x);
      }
    }
  }
}

TEST(CudaOverflow, IsInTheStatusAndInTheMessage) {
  for (const Codec codec : {Codec::packed, Codec::sketch}) {
    for (const CellType cells : {CellType::fixed32, CellType::fixed64}) {
      for (const Index index : {Index::bitmap, Index::bloom, Index::list}) {
        for (const std::uint32_t workers : {1u, 4u}) {
          const double limit =
              std::ldexp(1.0, (cells == CellType::fixed32 ? 31 : 63) - 8) / static_cast<double>(workers);
          const Plan plan = Plan::make({.elements = 5000,
                                        .expected_items = 100,
                                        .workers = workers,
                                        .codec = codec,
                                        .cells = cells,
                                        .index = index,
                                        .scale = 8});
          SCOPED_TRACE(plan.describe());
          Elements x(ElementType::float32, 5000, 0, std::byte{0});
          for (std::uint64_t e = 0; e < 5000; e += 50) set<float>(x, e, limit * 0.99);
          DeviceCodec device(plan, 5000, {});
          EXPECT_EQ(device.encode(x.view()).flags, 0u);
          set<float>(x, 2501, -limit * 1.01);
          Message expected;
          encode(plan, x.view(), expected);
          ASSERT_EQ(expected.flags(), kFlagOverflow);
          const cuda::Status status = device.encode(x.view());
          EXPECT_EQ(status.flags, cuda::kOverflow);
          expect_refusal(ErrorCode::overflow, "smaller scale", [&] { cuda::check(plan, status); });
          const Message got = device.take(expected.index.size(), 0);
          EXPECT_EQ(got.flags(), kFlagOverflow);
          if (codec == Codec::packed) {
            EXPECT_EQ(device.encode_index(x.view()).flags, cuda::kOverflow);
            EXPECT_EQ(device.take(expected.index.size(), 0).flags(), kFlagOverflow);
          }
          // The flag of another worker reaches whoever decodes.
          device.put(expected);
          Elements out(ElementType::float32, 5000, 0, Elements::kOld);
          std::vector<std::uint64_t> lost;
          EXPECT_NE(device.decode(out, {}, lost).flags & cuda::kOverflow, 0u);
        }
      }
    }
  }
}

// Sums of real values in float cells depend on their order: near each other, not equal.
TEST(CudaFloatCells, AgreeWithinTheirRounding) {
  const std::uint64_t elements = scaled(100'000, 5000);
  SeededDraw draw(34);
  Elements x(ElementType::float32, elements, 0, std::byte{0});
  std::uint64_t items = 0;
  for (std::uint64_t e = 0; e < elements; e += 1 + draw.below(20), ++items) {
    set<float>(x, e, static_cast<double>(draw.bits() >> 11) * 0x1p-53 + 0.25);
  }
  const Plan plan = Plan::make({.elements = elements,
                                .expected_items = items,
                                .codec = Codec::sketch,
                                .cells = CellType::float32,
                                .index = Index::bitmap});
  DeviceCodec device(plan, items, {});
  const cuda::Status encoded = device.encode(x.view());
  EXPECT_EQ(encoded.flags, 0u);
  Message expected;
  encode(plan, x.view(), expected);
  Message got = device.take(expected.index.size(), expected.payload.size());
  EXPECT_EQ(std::memcmp(got.index.data(), expected.index.data(), got.index.size() * 8), 0);
  for (std::size_t c = 0; c < got.payload_as<float>().size(); ++c) {
    ASSERT_NEAR(got.payload_as<float>()[c], expected.payload_as<float>()[c], 1e-4) << "cell " << c;
  }
  Elements out(ElementType::float32, elements, 0, Elements::kOld);
  std::vector<std::uint64_t> lost;
  const cuda::Status status = device.decode(out, {}, lost);
  EXPECT_EQ(status.flags, 0u);
  EXPECT_EQ(status.lost, decode(plan, expected, x.target()).lost);
  for (std::uint64_t e = 0; e < elements && status.lost == 0; ++e) {
    ASSERT_NEAR(out.as<float>()[e], x.as<float>()[e], 1e-3) << "element " << e;
  }
}

// Additions of floats in a GPU's memory take numbers below 2^-126 for zero.
TEST(CudaFloatCells, SubnormalsAreNoFurtherOffThanTheSmallestNormal) {
  const std::uint64_t elements = 3000;
  Elements x(ElementType::float32, elements, 0, std::byte{0});
  for (std::uint64_t e = 0; e < elements; e += 10) {
    x.as<float>()[e] = std::bit_cast<float>(static_cast<std::uint32_t>(1 + 20'000 * e));  // the largest are normal
  }
  const Plan plan = Plan::make({.elements = elements,
                                .expected_items = elements / 10,
                                .codec = Codec::sketch,
                                .cells = CellType::float32,
                                .index = Index::bitmap});
  DeviceCodec device(plan, elements / 10, {});
  const cuda::Status encoded = device.encode(x.view());
  EXPECT_EQ(encoded.flags, 0u);
  EXPECT_EQ(encoded.items, elements / 10);
  Elements out(ElementType::float32, elements, 0, Elements::kOld);
  std::vector<std::uint64_t> lost;
  const cuda::Status status = device.decode(out, {}, lost);
  EXPECT_EQ(status.flags, 0u);
  ASSERT_EQ(status.lost, 0u);
  for (std::uint64_t e = 0; e < elements; ++e) {
    // A value is taken from a cell after up to two others in turn, each off by as much.
    EXPECT_LE(std::abs(double{out.as<float>()[e]} - double{x.as<float>()[e]}), 0x1p-120) << "element " << e;
  }
}

}  // namespace
}  // namespace peel::testing
