// Dense sums that do not ask first: only where it was allowed, only after all had agreed, and only so often.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "allreduce/round_table.h"
#include "allreduce/workers.h"
#include "peel/exchange.h"

namespace peel::testing {
namespace {

constexpr unsigned kWorkers = 3;

struct Sums {
  explicit Sums(const StateOptions& options) {
    for (unsigned w = 0; w < kWorkers; ++w) states.emplace_back(options);
  }

  // Sums arrays of small numbers, a share of them zero; returns what was asked for.
  std::vector<Asked> step(std::size_t elements, std::size_t every) {
    std::vector<std::vector<float>> arrays(kWorkers, std::vector<float>(elements));
    RoundTable table(elements);
    for (unsigned w = 0; w < kWorkers; ++w) {
      for (std::size_t i = 0; i < elements; i += every) arrays[w][i] = static_cast<float>(i % 7 + w + 1);
      table.join(std::make_unique<Exchange>(states[w], World{.rank = w, .size = kWorkers, .link = kSlowLink},
                                            std::span<float>(arrays[w])));
    }
    table.run();
    for (unsigned w = 0; w < kWorkers; ++w) {
      EXPECT_FALSE(table.error(w)) << table.error(w)->what();
      for (std::size_t i = 0; i < elements; ++i) {
        EXPECT_EQ(arrays[w][i], i % every == 0 ? static_cast<float>(3 * (i % 7) + 6) : 0.0F) << i;
      }
    }
    return table.log();
  }

  std::vector<State> states;
};

bool opened(const std::vector<Asked>& log) { return log[0].kind == Collective::Kind::bit_or && log[0].bytes == 64; }

TEST(UnaskedSteps, FollowADenseOne) {
  Sums sums({.strategy = Strategy::dense, .unasked_steps = 2});
  std::vector<bool> asked;
  for (int step = 0; step < 7; ++step) asked.push_back(opened(sums.step(500, 1)));
  EXPECT_EQ(asked, (std::vector<bool>{true, false, false, true, false, false, true}));
}

TEST(UnaskedSteps, AreNoneUnlessAllowed) {
  Sums sums({.strategy = Strategy::dense});
  for (int step = 0; step < 4; ++step) EXPECT_TRUE(opened(sums.step(500, 1)));
}

TEST(UnaskedSteps, EndWithAnotherArray) {
  Sums sums({.strategy = Strategy::dense, .unasked_steps = 5});
  EXPECT_TRUE(opened(sums.step(500, 1)));
  EXPECT_FALSE(opened(sums.step(500, 1)));
  EXPECT_TRUE(opened(sums.step(501, 1)));
  EXPECT_FALSE(opened(sums.step(501, 1)));
}

TEST(UnaskedSteps, EndWithARestoredState) {
  Sums sums({.strategy = Strategy::dense, .unasked_steps = 5});
  EXPECT_TRUE(opened(sums.step(500, 1)));
  for (State& state : sums.states) state.restore(state.serialise());
  EXPECT_TRUE(opened(sums.step(500, 1)));
}

// One worker brings another array once; all hear of it, go on, and ask again.
TEST(UnaskedSteps, EndWhereWorkersDiffered) {
  Sums sums({.strategy = Strategy::dense, .unasked_steps = 3});
  for (int step = 0; step < 4; ++step) sums.step(500, 1);
  {
    RoundTable table(1);
    std::vector<std::vector<float>> arrays(kWorkers, std::vector<float>(600));
    arrays[0].resize(601);
    for (unsigned w = 0; w < kWorkers; ++w) {
      table.join(std::make_unique<Exchange>(sums.states[w], World{.rank = w, .size = kWorkers, .link = kSlowLink},
                                            std::span<float>(arrays[w])));
    }
    table.run();
    for (unsigned w = 0; w < kWorkers; ++w) EXPECT_TRUE(table.error(w));
  }
  EXPECT_TRUE(opened(sums.step(500, 1)));
  EXPECT_FALSE(opened(sums.step(500, 1)));
}

TEST(UnaskedSteps, NeverFollowACodedOne) {
  Sums sums({.unasked_steps = 5});
  for (int step = 0; step < 4; ++step) EXPECT_TRUE(opened(sums.step(200'000, 1000)));
}

// What is full is summed dense, and without asking; what has become sparse since is noticed all the same.
TEST(UnaskedSteps, DoNotKeepAutoFromChoosingAnew) {
  Sums sums({.unasked_steps = 3});
  for (int step = 0; step < 10; ++step) sums.step(200'000, 1);
  EXPECT_EQ(sums.states[0].last().strategy, Strategy::dense);
  bool coded = false;
  for (int step = 0; step < 200 && !coded; ++step) {
    sums.step(200'000, 1000);
    coded = sums.states[0].last().strategy != Strategy::dense;
  }
  EXPECT_TRUE(coded);
}

}  // namespace
}  // namespace peel::testing
