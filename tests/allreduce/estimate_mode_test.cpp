// Estimates, when they are asked for: a sketch of a fixed size, one round, no repair, and a report that says so.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "allreduce/round_table.h"
#include "allreduce/workers.h"

namespace peel::testing {
namespace {

constexpr unsigned kWorkers = 3;
constexpr std::size_t kElements = 20'000;

// Ones at every `step`-th element of every worker; the last report of worker 0, and its sum.
struct Estimated {
  Report report;
  std::vector<float> sum;
};

Estimated reduce(std::uint64_t estimate_bytes, std::size_t step, Strategy strategy = Strategy::automatic) {
  std::vector<State> states;
  for (unsigned w = 0; w < kWorkers; ++w) {
    states.emplace_back(StateOptions{.strategy = strategy, .grain = 1, .estimate_bytes = estimate_bytes});
  }
  Estimated last;
  for (std::uint64_t turn = 0; turn < 3; ++turn) {
    std::vector<std::vector<float>> arrays(kWorkers, std::vector<float>(kElements));
    RoundTable table(turn);
    for (unsigned w = 0; w < kWorkers; ++w) {
      for (std::size_t i = 0; i < kElements; i += step) arrays[w][i] = 1.0f;
      const World world{.rank = w, .size = kWorkers, .link = kSlowLink};
      table.join(std::make_unique<Exchange>(states[w], world, arrays[w]));
    }
    table.run();
    for (unsigned w = 0; w < kWorkers; ++w) {
      EXPECT_FALSE(table.error(w)) << table.error(w)->what();
      EXPECT_EQ(arrays[w], arrays[0]) << "workers hold different estimates";
    }
    last = {table.report(0), arrays[0]};
  }
  return last;
}

TEST(EstimateMode, ASketchThatIsLargeEnoughIsExact) {
  for (const Strategy strategy : {Strategy::automatic, Strategy::sketch}) {
    const Estimated result = reduce(8000, 20, strategy);
    EXPECT_EQ(result.report.strategy, Strategy::sketch);
    EXPECT_EQ(result.report.lost, 0u);
    EXPECT_EQ(result.report.exactness, Exactness::fixed_point);
    EXPECT_EQ(result.report.rounds, 1u);
    for (std::size_t i = 0; i < kElements; ++i) ASSERT_EQ(result.sum[i], i % 20 == 0 ? 3.0f : 0.0f) << i;
  }
}

// Four times as many items as cells: nothing is repaired, what was lost is counted, and the size stays.
TEST(EstimateMode, OneThatIsTooSmallSaysSo) {
  const Estimated large = reduce(8000, 20);
  const Estimated small = reduce(8000, 2);
  EXPECT_GT(small.report.lost, 1000u);
  EXPECT_EQ(small.report.repaired, 0u);
  EXPECT_EQ(small.report.exactness, Exactness::estimated);
  EXPECT_EQ(small.report.rounds, 1u);
  EXPECT_LE(small.report.bytes_sent, large.report.bytes_sent * 11 / 10 + kElements / 4) << "whatever the index is";
  // Elements of no worker are known to be zero, the others are about right in the mean.
  double mean = 0;
  for (std::size_t i = 0; i < kElements; ++i) {
    if (i % 2 != 0) {
      ASSERT_EQ(small.sum[i], 0.0f) << i;
    }
    mean += static_cast<double>(small.sum[i]) / (kElements / 2.0);
  }
  EXPECT_NEAR(mean, 3.0, 1.0);
}

// Cells of floats lose bits to whatever shares a cell: a report must not call that fixed point.
TEST(EstimateMode, FloatCellsAreCalledEstimates) {
  std::vector<State> states;
  for (unsigned w = 0; w < 2; ++w) {
    states.emplace_back(StateOptions{.strategy = Strategy::sketch, .cells = CellType::float32});
  }
  std::vector<std::vector<float>> arrays(2, std::vector<float>(1000));
  RoundTable table(1);
  for (unsigned w = 0; w < 2; ++w) {
    arrays[w][5] = 1.0f;
    table.join(std::make_unique<Exchange>(states[w], World{.rank = w, .size = 2, .link = kSlowLink}, arrays[w]));
  }
  table.run();
  EXPECT_EQ(arrays[0][5], 2.0f);
  EXPECT_EQ(table.report(0).exactness, Exactness::estimated);
}

}  // namespace
}  // namespace peel::testing
