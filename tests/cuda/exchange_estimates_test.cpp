// Estimates on a device, when they are asked for, and sketches of float cells, which are always called so.
#include <gtest/gtest.h>

#include <algorithm>

#include "allreduce/average.h"
#include "allreduce/round_table.h"
#include "cuda/device_world.h"

namespace peel::testing {
namespace {

constexpr unsigned kWorkers = 3;
constexpr std::size_t kElements = 20'000;
constexpr std::uint64_t kBytes = 8000;  // 2,000 cells

StateOptions options_of(Strategy strategy, bool average = false) {
  return {.strategy = strategy, .grain = 1, .average = average, .index = Index::bitmap, .estimate_bytes = kBytes};
}

// Numbers from 1 to 7 at every `step`-th element of every worker.
std::vector<float> values_of(std::size_t step, unsigned worker) {
  std::vector<float> x(kElements);
  for (std::size_t i = 0; i < kElements; i += step) x[i] = static_cast<float>(1 + (i / step + worker) % 7);
  return x;
}

struct Estimated {
  Report report;  // of worker 0 in the last step
  std::vector<float> sum;
  std::vector<std::vector<float>> residuals = {};
};

std::vector<float> floats_of(const std::vector<std::byte>& bytes) {
  std::vector<float> x(bytes.size() / sizeof(float));
  std::memcpy(x.data(), bytes.data(), bytes.size());
  return x;
}

Estimated on_device(std::size_t step, Strategy strategy, bool residual = false, bool average = false) {
  DeviceWorld world(kWorkers, options_of(strategy, average));
  world.with_residual = residual;
  std::vector<std::vector<std::byte>> own;
  for (unsigned w = 0; w < kWorkers; ++w) {
    const std::vector<float> x = values_of(step, w);
    const auto* bytes = reinterpret_cast<const std::byte*>(x.data());
    own.emplace_back(bytes, bytes + x.size() * sizeof(float));
  }
  for (unsigned turn = 0; turn < 3; ++turn) world.reduce(own, ElementType::float32);
  for (unsigned w = 0; w < kWorkers; ++w) {
    EXPECT_FALSE(world.table().error(w)) << world.table().error(w)->what();
    EXPECT_EQ(world.result(w, own[w].size()), world.result(0, own[0].size())) << "workers hold different estimates";
  }
  Estimated last{world.report(), floats_of(world.result(0, own[0].size()))};
  for (unsigned w = 0; residual && w < kWorkers; ++w) {
    last.residuals.push_back(floats_of(world.residual(w, own[w].size())));
  }
  return last;
}

Estimated on_host(std::size_t step, Strategy strategy, bool residual = false, bool average = false) {
  std::vector<State> states;
  for (unsigned w = 0; w < kWorkers; ++w) states.emplace_back(options_of(strategy, average));
  Estimated last;
  for (unsigned turn = 0; turn < 3; ++turn) {
    std::vector<std::vector<float>> arrays;
    for (unsigned w = 0; w < kWorkers; ++w) arrays.push_back(values_of(step, w));
    std::vector<std::vector<float>> residuals(kWorkers, std::vector<float>(kElements));
    RoundTable table(turn);
    for (unsigned w = 0; w < kWorkers; ++w) {
      const World world{.rank = w, .size = kWorkers, .link = kSlow};
      table.join(residual ? std::make_unique<Exchange>(states[w], world, Dense(arrays[w]), Dense(residuals[w]))
                          : std::make_unique<Exchange>(states[w], world, Dense(arrays[w])));
    }
    table.run();
    last = {table.report(0), arrays[0], residuals};
  }
  return last;
}

TEST(DeviceEstimates, OfASketchThatIsLargeEnoughAreExact) {
  for (const Strategy strategy : {Strategy::automatic, Strategy::sketch}) {
    const Estimated found = on_device(20, strategy);
    EXPECT_EQ(found.report.strategy, Strategy::sketch);
    EXPECT_EQ(found.report.items, kElements / 20);
    EXPECT_EQ(found.report.lost, 0u);
    EXPECT_EQ(found.report.repaired, 0u);
    EXPECT_EQ(found.report.exactness, Exactness::fixed_point);
    for (std::size_t i = 0; i < kElements; ++i) {
      float sum = 0;
      for (unsigned w = 0; w < kWorkers && i % 20 == 0; ++w) sum += static_cast<float>(1 + (i / 20 + w) % 7);
      ASSERT_EQ(found.sum[i], sum) << i;
    }
  }
}

// Five times as many items as cells: nothing is repaired, what was lost is counted, and the size stays.
TEST(DeviceEstimates, OfOneThatIsTooSmallSaySo) {
  const Estimated large = on_device(20, Strategy::automatic);
  const Estimated small = on_device(2, Strategy::automatic);
  EXPECT_EQ(small.report.strategy, Strategy::sketch);
  EXPECT_GT(small.report.lost, 1000u);
  EXPECT_EQ(small.report.repaired, 0u);
  EXPECT_EQ(small.report.exactness, Exactness::estimated);
  EXPECT_EQ(small.report.bytes_sent, large.report.bytes_sent);
  // Elements of no worker are known to be zero, the others are about right in the mean.
  double mean = 0;
  for (std::size_t i = 0; i < kElements; ++i) {
    if (i % 2 != 0) {
      ASSERT_EQ(small.sum[i], 0.0F) << i;
    }
    mean += static_cast<double>(small.sum[i]) / (kElements / 2.0);
  }
  EXPECT_NEAR(mean, 12.0, 4.0);
}

// Integer cells are the same bits on both, and so is what is made of them.
TEST(DeviceEstimates, AreThoseOfTheHost) {
  for (const std::size_t step : {2u, 7u, 20u}) {
    const Estimated device = on_device(step, Strategy::sketch);
    const Estimated host = on_host(step, Strategy::sketch);
    EXPECT_EQ(device.report.lost, host.report.lost) << step;
    EXPECT_EQ(device.report.items, host.report.items) << step;
    EXPECT_EQ(device.report.scale, host.report.scale) << step;
    EXPECT_EQ(device.report.exactness, host.report.exactness) << step;
    EXPECT_EQ(device.sum, host.sum) << step;
  }
}

// With a residual, too: estimates are multiplied alike, and what is missed is the same but for the last bits.
TEST(DeviceEstimates, FeedBackWhatThoseOfTheHostDo) {
  for (const bool average : {false, true}) {
    for (const std::size_t step : {1u, 2u, 7u, 20u}) {
      const Estimated device = on_device(step, Strategy::sketch, /*residual=*/true, average);
      const Estimated host = on_host(step, Strategy::sketch, /*residual=*/true, average);
      EXPECT_EQ(device.report.lost, host.report.lost) << step;
      EXPECT_EQ(device.sum, host.sum) << step;
      EXPECT_NEAR(device.report.estimate_error, host.report.estimate_error, 1e-9) << step;
      std::vector<double> whole(kElements);
      for (unsigned w = 0; w < kWorkers; ++w) {
        const std::vector<float> own = values_of(step, w);
        for (std::size_t i = 0; i < kElements; ++i) {
          ASSERT_NEAR(device.residuals[w][i], host.residuals[w][i], 1e-5) << i;
          whole[i] += static_cast<double>(own[i]) - static_cast<double>(device.residuals[w][i]);
        }
      }
      for (std::size_t i = 0; i < kElements; ++i) {
        ASSERT_NEAR(whole[i], static_cast<double>(device.sum[i]) * (average ? kWorkers : 1), 1e-4) << i;
      }
    }
  }
}

// Few units (codec/exact_gradient.h), so that not even a cell that many items share is rounded.
KnownStep few_units(std::uint64_t elements, double density, SeededDraw& random) {
  return KnownStep::draw({.elements = elements, .type = ElementType::bfloat16, .density = density}, kWorkers, random);
}

// A sum without estimates leaves nothing out.
TEST(DeviceEstimates, MissNothingWhereTheSumIsExact) {
  SeededDraw random(83);
  for (const Strategy strategy : kStrategies) {
    DeviceWorld world(kWorkers, {.strategy = strategy});
    world.with_residual = true;
    const KnownStep step = few_units(10'007, 0.02, random);
    expect_multiple(world, step, 1);
    for (unsigned w = 0; w < kWorkers; ++w) {
      EXPECT_EQ(world.residual(w, 10'007 * sizeof(float)), std::vector<std::byte>(10'007 * sizeof(float)));
    }
  }
}

TEST(DeviceFloatCells, SumAndAreCalledEstimates) {
  for (const ElementType type : {ElementType::float32, ElementType::bfloat16, ElementType::float16}) {
    SCOPED_TRACE(name(type));
    SeededDraw random(71);
    DeviceWorld world(kWorkers, {.strategy = Strategy::sketch, .cells = CellType::float32});
    for (unsigned i = 0; i < 3; ++i) {
      expect_multiple(world, few_units(30'011, 0.01, random), 1, type);
      EXPECT_EQ(world.report().strategy, Strategy::sketch);
      EXPECT_EQ(world.report().exactness, Exactness::estimated);
      EXPECT_EQ(world.report().lost, 0u);
      EXPECT_EQ(world.report().rescaled, 0u);
    }
  }
}

// What does not peel is summed again, in float cells too.
TEST(DeviceFloatCells, AreRepaired) {
  SeededDraw random(73);
  DeviceWorld world(kWorkers, {.strategy = Strategy::sketch, .grain = 1, .cells = CellType::float32});
  for (unsigned i = 0; i < 2; ++i) expect_multiple(world, few_units(30'011, 0.005, random), 1);
  expect_multiple(world, few_units(30'011, 0.3, random), 1);
  EXPECT_GT(world.report().repaired, 1000u);
  EXPECT_EQ(world.report().lost, 0u);
}

// Magnitudes may jump as they like.
TEST(DeviceFloatCells, HaveNoScaleToOutgrow) {
  SeededDraw random(79);
  DeviceWorld world(kWorkers, {.strategy = Strategy::sketch, .grain = 1, .cells = CellType::float32});
  for (const double factor : {1.0, 0x1p40, 0x1p-40, 0x1p60}) {
    const KnownStep step = few_units(10'007, 0.02, random);
    std::vector<std::vector<std::byte>> own = dense_of(step, ElementType::float32);
    for (auto& one : own) detail::multiply(ElementType::float32, factor, one, one.data());
    world.reduce(own, ElementType::float32);
    std::vector<std::byte> sum = step.sum.dense(ElementType::float32);
    detail::multiply(ElementType::float32, factor, sum, sum.data());
    for (unsigned w = 0; w < kWorkers; ++w) {
      ASSERT_FALSE(world.table().error(w)) << world.table().error(w)->what();
      const std::vector<std::byte> found = world.result(w, sum.size());
      for (std::size_t i = 0; i < sum.size(); i += sizeof(float)) {
        float a = 0;
        float b = 0;
        std::memcpy(&a, found.data() + i, sizeof(float));
        std::memcpy(&b, sum.data() + i, sizeof(float));
        ASSERT_EQ(a, b) << "element " << i / sizeof(float) << " times " << factor;
      }
    }
    EXPECT_EQ(world.report().rescaled, 0u);
    EXPECT_EQ(world.report().strategy, Strategy::sketch);
  }
}

}  // namespace
}  // namespace peel::testing
