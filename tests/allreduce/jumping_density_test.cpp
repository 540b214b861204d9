// A long run whose gradients change all the time: density jumps between 0.1% and 50%, rows shift their phase,
// magnitudes grow and shrink. The sum is exact at every step, and whatever had to be repaired or rescaled was.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "allreduce/small_world.h"
#include "scale.h"

namespace peel::testing {
namespace {

constexpr unsigned kWorkers = 3;

// Multiplies all values of a step by 2^shift: sums stay exact in floats, and a fixed-point scale has to follow.
void run_step(SmallWorld& world, const KnownStep& known, int shift, std::uint64_t seed, Report& report) {
  RoundTable table(seed);
  std::vector<std::vector<float>> arrays(kWorkers, std::vector<float>(known.sum.size()));
  for (unsigned w = 0; w < kWorkers; ++w) {
    for (std::size_t i = 0; i < arrays[w].size(); ++i) {
      arrays[w][i] = std::ldexp(element_of<float>(known.workers[w][i]), shift);
    }
    table.join(std::make_unique<Exchange>(world.states()[w], world.world(w), arrays[w]));
  }
  table.run();
  for (unsigned w = 0; w < kWorkers; ++w) {
    ASSERT_FALSE(table.error(w)) << table.error(w)->what();
    for (std::size_t i = 0; i < arrays[w].size(); ++i) {
      ASSERT_EQ(arrays[w][i], std::ldexp(element_of<float>(known.sum[i]), shift))
          << "worker " << w << ", element " << i << ", " << table.report(w).to_json();
    }
    ASSERT_EQ(table.report(w).lost, 0u);
  }
  report = table.report(0);
}

class JumpingDensity : public ::testing::TestWithParam<Strategy> {};
INSTANTIATE_TEST_SUITE_P(Strategies, JumpingDensity,
                         ::testing::Values(Strategy::automatic, Strategy::packed, Strategy::sketch, Strategy::split,
                                           Strategy::gather),
                         [](const auto& tested) { return std::string(name(tested.param)); });

TEST_P(JumpingDensity, AHundredStepsStayExact) {
  SmallWorld world(kWorkers, {.strategy = GetParam(), .chunk_bytes = 65'536});
  SeededDraw random(99);
  const std::uint64_t elements = scaled(100'003, 20'003);
  int shift = 0;
  for (std::uint64_t step = 0; step < 100; ++step) {
    const double density = 0.001 * std::pow(500.0, static_cast<double>(random.below(1001)) / 1000);
    shift = static_cast<int>(random.below(21)) - 10;  // up to a million times larger or smaller than the last
    const KnownStep known = KnownStep::draw({.elements = elements,
                                             .pattern = random.below(2) == 0 ? Pattern::uniform : Pattern::rows,
                                             .density = density / kWorkers,
                                             .phase = random.below(64)},
                                            kWorkers, random);
    Report report;
    ASSERT_NO_FATAL_FAILURE(run_step(world, known, shift, step, report)) << "step " << step;
    EXPECT_EQ(report.step, step + 1);
    EXPECT_FALSE(report.reset);
  }
  const Totals& totals = world.states()[0].totals();
  EXPECT_EQ(totals.steps, 100u);
  EXPECT_EQ(totals.resets, 0u);
  if (GetParam() == Strategy::sketch) {
    EXPECT_GT(totals.repaired, 0u) << "no plan was ever too small: the run is too tame";
    EXPECT_GT(totals.rescaled, 0u) << "no value ever outgrew its scale: the run is too tame";
  }
  EXPECT_LT(totals.bytes_sent, totals.dense_bytes);
}

TEST(Growth, TenTimesMoreItemsAreRepairedInTheSameStep) {
  SmallWorld world(kWorkers, {.strategy = Strategy::sketch, .grain = 1});
  SeededDraw random(5);
  const Drawing few{.elements = 50'000, .density = 0.005};
  Drawing many = few;
  many.density = 0.05;
  Report report;
  for (std::uint64_t step = 0; step < 3; ++step) {
    run_step(world, KnownStep::draw(few, kWorkers, random), 0, step, report);
    EXPECT_EQ(report.repaired, 0u);
  }
  EXPECT_EQ(report.rounds, 1u);
  run_step(world, KnownStep::draw(many, kWorkers, random), 0, 3, report);
  EXPECT_GT(report.repaired, 1000u);
  EXPECT_EQ(report.lost, 0u);
  EXPECT_EQ(report.rounds, 2u);
  // And the next plan has room for them.
  run_step(world, KnownStep::draw(many, kWorkers, random), 0, 4, report);
  EXPECT_EQ(report.repaired, 0u);
  EXPECT_EQ(report.rounds, 1u);
}

TEST(Growth, AThousandTimesLargerValuesAreRescaledInTheSameStep) {
  SmallWorld world(kWorkers, {.strategy = Strategy::sketch, .grain = 1});
  SeededDraw random(6);
  const Drawing how{.elements = 50'000, .density = 0.005};
  Report report;
  run_step(world, KnownStep::draw(how, kWorkers, random), 0, 0, report);
  run_step(world, KnownStep::draw(how, kWorkers, random), 0, 1, report);
  EXPECT_EQ(report.rescaled, 0u);
  const std::int32_t scale = report.scale;
  run_step(world, KnownStep::draw(how, kWorkers, random), 10, 2, report);
  EXPECT_EQ(report.rescaled, 1u);
  EXPECT_EQ(report.scale, scale - 10);
  run_step(world, KnownStep::draw(how, kWorkers, random), 10, 3, report);
  EXPECT_EQ(report.rescaled, 0u);
  EXPECT_EQ(report.scale, scale - 10);
}

// A gradient that vanishes below the old scale must not stay invisible: however small it gets, it is summed.
TEST(Growth, AMillionTimesSmallerValuesAreStillSummed) {
  SmallWorld world(kWorkers, {.strategy = Strategy::sketch, .grain = 1});
  SeededDraw random(8);
  const Drawing how{.elements = 50'000, .density = 0.005};
  Report report;
  run_step(world, KnownStep::draw(how, kWorkers, random), 0, 0, report);
  for (const int shift : {-20, -60, -100, 0, -100}) {
    ASSERT_NO_FATAL_FAILURE(run_step(world, KnownStep::draw(how, kWorkers, random), shift, 1, report)) << shift;
    EXPECT_GT(report.items, 0u) << shift;
  }
}

// Nor may one that begins with nothing but zeros.
TEST(Growth, TinyValuesAfterNothingAtAllAreSummed) {
  SmallWorld world(kWorkers, {.strategy = Strategy::sketch, .grain = 1});
  SeededDraw random(9);
  Report report;
  run_step(world, KnownStep::draw({.elements = 5000, .pattern = Pattern::nothing}, kWorkers, random), 0, 0, report);
  EXPECT_EQ(report.items, 0u);
  run_step(world, KnownStep::draw({.elements = 5000, .density = 0.01}, kWorkers, random), -90, 1, report);
  EXPECT_GT(report.items, 0u);
}

}  // namespace
}  // namespace peel::testing
