// Estimates, when they are asked for: a sketch of a fixed size, one round, no repair, and a report that says so.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "allreduce/round_table.h"
#include "allreduce/workers.h"
#include "draw.h"
#include "peel/allreduce.h"
#include "refusal.h"

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

// ---- with a residual: what estimates miss is fed back

constexpr std::uint64_t kSmall = 1600;  // 400 cells

struct Step {
  Report report;
  std::vector<std::vector<float>> sums;
  std::vector<std::vector<float>> residuals;
};

// Workers that remember, and what they were told.
class Team {
 public:
  explicit Team(StateOptions options) {
    for (unsigned w = 0; w < kWorkers; ++w) {
      options.log = [this, w](std::string_view sentence) {
        if (w == 0) sentences.emplace_back(sentence);
      };
      states.emplace_back(options);
    }
  }

  Step reduce(std::vector<std::vector<float>> own, bool residual = true) {
    Step step{.report = {}, .sums = std::move(own), .residuals = {}};
    for (const auto& one : step.sums) step.residuals.emplace_back(one.size(), NAN);
    RoundTable table(turn++);
    for (unsigned w = 0; w < kWorkers; ++w) {
      const World world{.rank = w, .size = kWorkers, .link = kSlowLink};
      table.join(residual ? std::make_unique<Exchange>(states[w], world, step.sums[w], step.residuals[w])
                          : std::make_unique<Exchange>(states[w], world, step.sums[w]));
    }
    table.run();
    for (unsigned w = 0; w < kWorkers; ++w) {
      EXPECT_FALSE(table.error(w)) << table.error(w)->what();
      EXPECT_EQ(step.sums[w], step.sums[0]) << "workers hold different estimates";
    }
    step.report = table.report(0);
    return step;
  }

  std::vector<State> states;
  std::vector<std::string> sentences;

 private:
  std::uint64_t turn = 0;
};

// Normal numbers, of a few sizes if there are tails, in every `every`-th run of 16 elements.
std::vector<std::vector<float>> draw(std::uint64_t seed, std::size_t every, bool tails = false) {
  SeededDraw random(seed);
  std::vector<std::vector<float>> own(kWorkers, std::vector<float>(kElements));
  for (auto& one : own) {
    for (std::size_t i = 0; i < kElements; ++i) {
      if (i / 16 % every != 0) continue;
      double sum = 0;
      for (int k = 0; k < 12; ++k) sum += static_cast<double>(random.below(1 << 20)) / (1 << 20) - 0.5;
      one[i] = static_cast<float>(tails ? sum * sum * sum : sum);
    }
  }
  return own;
}

std::vector<double> added(const std::vector<std::vector<float>>& own) {
  std::vector<double> sum(own[0].size());
  for (const auto& one : own) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += one[i];
  }
  return sum;
}

double norm(const std::vector<double>& x) {
  double sum = 0;
  for (const double one : x) sum += one * one;
  return std::sqrt(sum);
}

std::vector<double> difference(const std::vector<double>& a, const std::vector<float>& b) {
  std::vector<double> d(a.size());
  for (std::size_t i = 0; i < d.size(); ++i) d[i] = a[i] - static_cast<double>(b[i]);
  return d;
}

TEST(EstimateResidual, AddsUpToWhatTheSumMissed) {
  for (const bool average : {false, true}) {
    for (const std::uint32_t grain : {1u, 16u}) {
      for (const std::uint64_t bytes : {kSmall, std::uint64_t{30'000}}) {  // all is lost, and about a half
        Team team({.grain = grain, .average = average, .estimate_bytes = bytes, .chunk_bytes = 16'384});
        for (std::uint64_t turn = 0; turn < 3; ++turn) {
          // The first two chunks are full, which makes them lose, and the others are not.
          std::vector<std::vector<float>> own = draw(turn, 2);
          const Step step = team.reduce(own);
          EXPECT_GT(step.report.lost, 0u);
          const std::vector<double> sum = added(own);
          const std::vector<double> missed = added(step.residuals);
          std::uint64_t peeled = 0;
          for (std::size_t i = 0; i < kElements; ++i) {
            const double got = static_cast<double>(step.sums[0][i]) * (average ? kWorkers : 1);
            ASSERT_NEAR(missed[i] + got, sum[i], 1e-4) << i;
            peeled +=
                std::all_of(step.residuals.begin(), step.residuals.end(), [&](const auto& one) { return one[i] == 0; });
          }
          EXPECT_GE(peeled, kElements / 2) << "elements that nobody has are not missed";
        }
      }
    }
  }
}

TEST(EstimateResidual, IsZeroWhereNothingIsLost) {
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{80'000}}) {
    Team team({.grain = 1, .estimate_bytes = bytes});
    for (std::uint64_t turn = 0; turn < 2; ++turn) {
      const Step step = team.reduce(draw(turn, 8));
      EXPECT_EQ(step.report.lost, 0u);
      EXPECT_EQ(step.report.estimate_error, 0);
      for (const auto& one : step.residuals) EXPECT_EQ(one, std::vector<float>(kElements));
    }
  }
}

TEST(EstimateResidual, IsZeroAfterValuesThatAreNotFinite) {
  Team team({.grain = 1, .estimate_bytes = kSmall});
  std::vector<std::vector<float>> own = draw(1, 1);
  (void)team.reduce(own);
  own[1][7] = INFINITY;
  const Step step = team.reduce(own);
  EXPECT_EQ(step.report.not_finite, 1u);
  for (const auto& one : step.residuals) EXPECT_EQ(one, std::vector<float>(kElements));
}

// With 150 items for each cell of a subtable, estimates are several times as long as what they estimate. Where they are
// fed back they are made so much smaller that less is missed than was there.
TEST(EstimateResidual, MissesLessThanThereWas) {
  for (const bool tails : {false, true}) {
    Team plain({.grain = 1, .estimate_bytes = kSmall});
    Team fed({.grain = 1, .estimate_bytes = kSmall});
    const std::vector<std::vector<float>> own = draw(5, 1, tails);
    const std::vector<double> sum = added(own);
    const Step unbiased = plain.reduce(own, /*residual=*/false);
    const Step smaller = fed.reduce(own);
    EXPECT_GT(norm(difference(sum, unbiased.sums[0])), 2 * norm(sum));
    EXPECT_LT(norm(difference(sum, smaller.sums[0])), norm(sum));
    EXPECT_NEAR(unbiased.report.estimate_error, norm(difference(sum, unbiased.sums[0])) / norm(sum),
                0.1 * unbiased.report.estimate_error);
    EXPECT_NEAR(smaller.report.estimate_error, norm(difference(sum, smaller.sums[0])) / norm(sum), 0.02);
  }
}

// The reported error is close to the true one where a part is lost, too.
TEST(EstimateError, IsAboutTheTrueOne) {
  for (const std::uint64_t bytes : {8'000u, 24'000u, 40'000u}) {
    Team team({.grain = 1, .estimate_bytes = bytes, .chunk_bytes = 16'384});
    std::vector<std::vector<float>> own = draw(bytes, 1, /*tails=*/true);
    for (auto& one : own) std::fill(one.begin() + 12'000, one.end(), 0.0f);
    const std::vector<double> sum = added(own);
    const Step step = team.reduce(own);
    EXPECT_NEAR(step.report.estimate_error, norm(difference(sum, step.sums[0])) / norm(sum), 0.05) << bytes;
  }
}

// The same gradient again and again: all of it arrives in the end, because cells are others in every step.
TEST(EstimateResidual, ArrivesLater) {
  Team team({.grain = 1, .estimate_bytes = 8'000});
  const std::vector<std::vector<float>> own = draw(3, 1);
  std::vector<std::vector<float>> next = own;
  std::vector<double> arrived(kElements);
  constexpr int kSteps = 150;
  for (int turn = 0; turn < kSteps; ++turn) {
    const Step step = team.reduce(next);
    for (std::size_t i = 0; i < kElements; ++i) arrived[i] += static_cast<double>(step.sums[0][i]) / kSteps;
    for (unsigned w = 0; w < kWorkers; ++w) {
      for (std::size_t i = 0; i < kElements; ++i) next[w][i] = own[w][i] + step.residuals[w][i];
    }
  }
  const std::vector<double> sum = added(own);
  std::vector<double> rest(kElements);
  for (std::size_t i = 0; i < kElements; ++i) rest[i] = sum[i] - arrived[i];
  EXPECT_LT(norm(rest), 0.25 * norm(sum));
}

// One chunk of five is full, and the others are nearly empty. By lengths the full one would get a fifth of the bytes.
TEST(EstimateMode, ChunksShareBytesByTheirLastUnions) {
  std::vector<std::vector<float>> own(kWorkers, std::vector<float>(kElements));
  for (auto& one : own) {
    std::fill_n(one.begin(), 4096, 1.0f);
    for (std::size_t i = 4096; i < kElements; i += 100) one[i] = 1.0f;
  }
  Team team({.grain = 1, .estimate_bytes = 28'000, .chunk_bytes = 16'384});
  const Step first = team.reduce(own);
  EXPECT_EQ(first.report.chunks, 5u);
  EXPECT_GT(first.report.lost, 4000u) << "nothing is known yet, so lengths decide";
  const Step second = team.reduce(own);
  EXPECT_EQ(second.report.lost, 0u);
  EXPECT_LE(second.report.bytes_sent, first.report.bytes_sent);
}

TEST(EstimateMode, WarnsOfWhatItMissesButNotInEveryStep) {
  Team team({.grain = 1, .estimate_bytes = kSmall});
  const std::vector<std::vector<float>> own = draw(1, 1);
  for (int turn = 0; turn < 101; ++turn) {
    EXPECT_GT(team.reduce(own).report.estimate_error, 0.95);
    EXPECT_EQ(team.sentences.size(), turn < 100 ? 1u : 2u) << turn;
  }
  EXPECT_NE(team.sentences[0].find("20000 of 20000 items did not peel in 1600 bytes"), std::string::npos);
  EXPECT_NE(team.sentences[0].find("Give estimates a larger share."), std::string::npos);
  Team large({.grain = 1, .estimate_bytes = 160'000});
  for (int turn = 0; turn < 3; ++turn) (void)large.reduce(own);
  EXPECT_TRUE(large.sentences.empty());
}

TEST(EstimateMode, MayHaveOtherBytesInEveryStep) {
  Team team({.grain = 1});
  const std::vector<std::vector<float>> own = draw(1, 1);
  EXPECT_FALSE(team.states[0].union_elements());
  EXPECT_EQ(team.reduce(own).report.lost, 0u);
  EXPECT_EQ(team.states[0].union_elements(), kElements);
  for (State& state : team.states) state.set_estimate_bytes(kSmall);
  EXPECT_GT(team.reduce(own).report.lost, 0u);
  for (State& state : team.states) state.set_estimate_bytes(0);
  EXPECT_EQ(team.reduce(own).report.lost, 0u);
}

// Rows are estimated as dense arrays are, and the error is told.
TEST(EstimateMode, TellsTheErrorOfSparseGradients) {
  constexpr std::uint64_t kRow = 4;
  std::vector<State> states;
  for (unsigned w = 0; w < kWorkers; ++w) {
    states.emplace_back(
        StateOptions{.strategy = Strategy::sketch, .grain = kRow, .elements = kElements, .estimate_bytes = kSmall});
  }
  const std::vector<std::vector<float>> own = draw(2, 2);
  const std::vector<double> whole = added(own);
  std::vector<Sparse> sums(kWorkers);
  std::vector<Sparse> rows(kWorkers);
  RoundTable table(1);
  for (unsigned w = 0; w < kWorkers; ++w) {
    for (std::uint64_t item = 0; item < kElements / kRow; ++item) {
      if (item * kRow / 16 % 2 != 0) continue;
      const auto* first = reinterpret_cast<const std::byte*>(own[w].data() + item * kRow);
      rows[w].items.push_back(item);
      rows[w].values.insert(rows[w].values.end(), first, first + kRow * sizeof(float));
    }
    const World world{.rank = w, .size = kWorkers, .link = kSlowLink};
    table.join(std::make_unique<Exchange>(states[w], world, ConstSparse(rows[w]), sums[w]));
  }
  table.run();
  ASSERT_FALSE(table.error(0)) << table.error(0)->what();
  std::vector<float> got(kElements);
  const std::span<const float> values = sums[0].values_as<float>();
  for (std::size_t i = 0; i < sums[0].items.size(); ++i) {
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(i * kRow), kRow,
                got.begin() + static_cast<std::ptrdiff_t>(sums[0].items[i] * kRow));
  }
  const double error = norm(difference(whole, got)) / norm(whole);
  EXPECT_GT(error, 1.0) << "nothing is fed back, so estimates are unbiased and mostly noise";
  EXPECT_NEAR(table.report(0).estimate_error, error, 0.15 * error);
}

TEST(EstimateResidual, ComesFromAnAllReduceToo) {
  const std::vector<std::vector<float>> own = draw(4, 1);
  const std::vector<double> whole = added(own);
  std::vector<std::vector<float>> sums = own;
  std::vector<std::vector<float>> residuals(kWorkers, std::vector<float>(kElements));
  const Errors errors = on_each(kWorkers, [&](Communicator& communicator) {
    const unsigned w = communicator.rank();
    State state({.grain = 1, .estimate_bytes = kSmall, .link = kSlowLink});
    EXPECT_GT(allreduce(communicator, sums[w], residuals[w], state).lost, 0u);
  });
  EXPECT_EQ(first_error(errors), "");
  const std::vector<double> missed = added(residuals);
  for (std::size_t i = 0; i < kElements; ++i) {
    ASSERT_NEAR(missed[i] + static_cast<double>(sums[0][i]), whole[i], 1e-4) << i;
  }
}

// A worker that is alone gets what it has.
TEST(EstimateResidual, OfOneWorkerIsZero) {
  State state({.estimate_bytes = kSmall});
  std::vector<float> x(kElements, 1.0f);
  std::vector<float> residual(kElements, NAN);
  const Exchange exchange(state, World{}, x, residual);
  EXPECT_TRUE(exchange.finished());
  EXPECT_EQ(residual, std::vector<float>(kElements));
}

TEST(EstimateResidual, IsOfAStateThatNobodyElseUses) {
  State state(StateOptions{.estimate_bytes = 4000});
  std::vector<float> x(kElements, 1.0F), residual(kElements);
  const World world{.rank = 0, .size = 2, .link = kSlowLink};
  const Exchange first(state, world, Dense(x), Dense(residual));
  expect_refusal(ErrorCode::invalid_argument, "in use", [&] { (void)state.serialise(); });
}

// Workers that learned different things would make sketches of different cells.
TEST(EstimateResidual, OfWorkersThatLearnedDifferentThingsIsPlannedAnew) {
  std::vector<State> states;
  for (unsigned w = 0; w < 2; ++w) states.emplace_back(StateOptions{.grain = 1, .estimate_bytes = 4000});
  const auto reduce_all = [&](std::uint64_t seed) {
    std::vector<std::vector<float>> arrays(2, std::vector<float>(kElements)), residuals = arrays;
    RoundTable table(seed);
    for (unsigned w = 0; w < 2; ++w) {
      for (std::size_t i = w; i < kElements; i += 7) arrays[w][i] = 1.0F;
      const World world{.rank = w, .size = 2, .link = kSlowLink};
      table.join(std::make_unique<Exchange>(states[w], world, Dense(arrays[w]), Dense(residuals[w])));
    }
    table.run();
    for (unsigned w = 0; w < 2; ++w) EXPECT_FALSE(table.error(w)) << table.error(w)->what();
    return table.report(0);
  };
  for (std::uint64_t turn = 0; turn < 3; ++turn) EXPECT_FALSE(reduce_all(turn).reset);
  const std::vector<std::byte> learned = states[1].serialise();
  for (std::uint64_t turn = 3; turn < 5; ++turn) (void)reduce_all(turn);
  states[1].restore(learned);
  EXPECT_TRUE(reduce_all(5).reset);
}

TEST(EstimateResidual, MustBeLikeItsArray) {
  const auto refusal = [](Dense x, Dense residual) -> std::string {
    std::vector<State> states;
    for (unsigned w = 0; w < 2; ++w) states.emplace_back(StateOptions{.estimate_bytes = kSmall});
    RoundTable table(1);
    for (unsigned w = 0; w < 2; ++w) {
      table.join(std::make_unique<Exchange>(states[w], World{.rank = w, .size = 2, .link = kSlowLink}, x, residual));
    }
    table.run();
    EXPECT_TRUE(table.error(0) && table.error(1));
    return table.error(0) ? table.error(0)->what() : "";
  };
  std::vector<float> x(100);
  std::vector<float> shorter(99);
  std::vector<double> wider(100);
  std::vector<std::int32_t> integers(100);
  for (const Dense residual : {Dense(shorter), Dense(wider)}) {
    EXPECT_NE(refusal(x, residual).find("residual is not like its array"), std::string::npos);
  }
  EXPECT_NE(refusal(x, Dense(nullptr, 100, ElementType::float32)).find("null pointer"), std::string::npos);
  EXPECT_NE(refusal(integers, integers).find("integers have no residual"), std::string::npos);
}

}  // namespace
}  // namespace peel::testing
