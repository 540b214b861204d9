// What is predicted comes from the model that chooses: the same costs, and the same winner.
#include "peel/predict.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "allreduce/choice.h"
#include "refusal.h"

namespace peel::testing {
namespace {

constexpr std::uint64_t kElements = 1 << 18;  // one chunk
constexpr LinkFacts kGigabit{.latency_s = 50e-6, .bytes_per_second = 125e6, .copy_bytes_per_second = 8e9};

PredictOptions workload(double density, double own, LinkFacts link = kGigabit, std::uint64_t elements = kElements) {
  const auto items = [&](double share) { return static_cast<std::uint64_t>(share * static_cast<double>(elements)); };
  return {.elements = elements, .workers = 4, .items = items(density), .own_items = items(own), .link = link};
}

detail::ChunkHistory remembered(const PredictOptions& options) {
  detail::ChunkHistory history;
  history.steps = 1;
  history.items = options.items;
  history.own_items = options.own_items;
  history.has_magnitude = 1;
  return history;
}

TEST(Predict, IsTheModelThatChooses) {
  for (const double density : {0.001, 0.05, 0.5}) {
    const PredictOptions options = workload(density, density / 3);
    const World world{.size = 4, .link = options.link};
    const detail::ChunkShape shape{.elements = kElements};
    const detail::ChunkHistory history = remembered(options);
    for (const Prediction& one : predict(options)) {
      const Plan plan = detail::plan_for(one.strategy, {.grain = 1}, world, shape, history);
      const double chunk = detail::expected_seconds(one.strategy, plan, world, shape, history);
      EXPECT_NEAR(one.total_s, chunk + options.link.latency_s, 1e-9) << name(one.strategy);
      EXPECT_NEAR(one.total_s, one.wire_s + one.latency_s + one.codec_s, 1e-12);
      EXPECT_EQ(one.plan, plan);
    }
  }
}

TEST(Predict, TheFastestIsWhatAutoTakes) {
  for (const double bytes_per_second : {25e6, 125e6, 12.5e9}) {
    for (const double density : {0.0001, 0.01, 0.1, 0.4, 1.0}) {
      LinkFacts link = kGigabit;
      link.bytes_per_second = bytes_per_second;
      const PredictOptions options = workload(density, density / 3, link);
      const std::vector<Prediction> all = predict(options);
      const auto first =
          std::find_if(all.begin(), all.end(), [](const Prediction& one) { return one.strategy != Strategy::sketch; });
      const Strategy taken =
          detail::choose({}, {.size = 4, .link = link}, {.elements = kElements}, remembered(options)).strategy;
      EXPECT_TRUE(taken == first->strategy || taken == Strategy::dense)
          << name(taken) << " instead of " << name(first->strategy) << " at " << density;
    }
  }
}

TEST(Predict, KnowsAllStrategiesAndSortsThem) {
  const std::vector<Prediction> all = predict(workload(0.01, 0.004, kGigabit, 1 << 24));
  std::set<Strategy> strategies;
  for (const Prediction& one : all) {
    strategies.insert(one.strategy);
    EXPECT_GT(one.rounds, 0u);
    EXPECT_GT(one.latency_s, 0);
    EXPECT_GT(one.bytes_sent, 0u);
  }
  EXPECT_EQ(strategies, (std::set<Strategy>{Strategy::dense, Strategy::split, Strategy::gather, Strategy::packed,
                                            Strategy::sketch}));
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end(),
                             [](const Prediction& a, const Prediction& b) { return a.total_s < b.total_s; }));
}

TEST(Predict, RefusesWhatCannotBe) {
  expect_refusal(ErrorCode::invalid_argument, "no more items",
                 [] { (void)predict({.elements = 10, .workers = 2, .items = 11, .own_items = 1}); });
  expect_refusal(ErrorCode::invalid_argument, "no more items",
                 [] { (void)predict({.elements = 10, .workers = 2, .items = 5, .own_items = 6}); });
  expect_refusal(ErrorCode::invalid_argument, "a worker",
                 [] { (void)predict({.elements = 10, .workers = 0, .items = 5, .own_items = 5}); });
  expect_refusal(ErrorCode::invalid_argument, "power of two",
                 [] { (void)predict({.elements = 10, .workers = 2, .grain = 3, .items = 1, .own_items = 1}); });
}

}  // namespace
}  // namespace peel::testing
