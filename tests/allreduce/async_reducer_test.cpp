// Many buckets at once through one communicator: every future gets its own sum, in whatever order they are asked for.
#include <gtest/gtest.h>

#include <future>
#include <vector>

#include "allreduce/known_gradients.h"
#include "allreduce/workers.h"
#include "peel/allreduce.h"
#include "refusal.h"
#include "scale.h"

namespace peel::testing {
namespace {

StateOptions ordinary(Strategy strategy = Strategy::automatic) {
  return {.strategy = strategy, .link = kSlowLink, .chunk_bytes = 8192, .timeout = kPatient};
}

TEST(AsyncReducer, ManyBucketsOfDifferentSizesInAnyOrder) {
  constexpr unsigned kWorkers = 3;
  constexpr Strategy kStrategies[] = {Strategy::automatic, Strategy::packed, Strategy::sketch,
                                      Strategy::split,     Strategy::gather, Strategy::dense};
  const std::size_t buckets = 20;
  SeededDraw random(51);
  std::vector<KnownStep> known;
  for (std::size_t b = 0; b < buckets; ++b) {
    known.push_back(KnownStep::draw({.elements = b % 7 == 3 ? 0 : 1 + random.below(scaled(20'000, 4'000)),
                                     .pattern = kPatterns[b % std::size(kPatterns)]},
                                    kWorkers, random));
  }
  const Errors errors = on_each(kWorkers, [&](Communicator& communicator) {
    std::vector<State> states;
    for (std::size_t b = 0; b < buckets; ++b) states.emplace_back(ordinary(kStrategies[b % std::size(kStrategies)]));
    AsyncReducer reducer(communicator);
    for (int step = 0; step < 3; ++step) {
      std::vector<Array> arrays;
      std::vector<std::future<Report>> futures;
      for (std::size_t b = 0; b < buckets; ++b) {
        arrays.emplace_back(known[b].workers[communicator.rank()].dense(ElementType::float32), ElementType::float32);
      }
      for (std::size_t b = 0; b < buckets; ++b) futures.push_back(reducer.allreduce(arrays[b].view(), states[b]));
      for (std::size_t i = 0; i < buckets; ++i) {
        // Another order on every worker.
        const std::size_t b = (i * 7 + communicator.rank() * 5) % buckets;
        const Report report = futures[b].get();
        EXPECT_EQ(report.step, static_cast<std::uint64_t>(step) + 1);
        EXPECT_EQ(difference(known[b].sum, ElementType::float32, arrays[b].bytes()), "") << "bucket " << b;
      }
    }
  });
  EXPECT_EQ(first_error(errors), "");
}

TEST(AsyncReducer, SparseBucketsBesideDenseOnes) {
  SeededDraw random(52);
  const KnownStep known = KnownStep::draw({.elements = 9000, .pattern = Pattern::rows}, 2, random);
  const Errors errors = on_each(2, [&](Communicator& communicator) {
    const KnownGradient& mine = known.workers[communicator.rank()];
    StateOptions rows = ordinary();
    rows.grain = 64;
    rows.elements = 9000;
    State dense_state(ordinary()), sparse_state(rows);
    AsyncReducer reducer(communicator);
    Array x(mine.dense(ElementType::float32), ElementType::float32);
    const Sparse own = mine.sparse(ElementType::float32, 64);
    Sparse sum;
    std::future<Report> sparse = reducer.allreduce(own, sum, sparse_state);
    std::future<Report> dense = reducer.allreduce(x.view(), dense_state);
    dense.get();
    sparse.get();
    EXPECT_EQ(difference(known.sum, ElementType::float32, x.bytes()), "");
    EXPECT_EQ(difference(known, 64, sum), "");
  });
  EXPECT_EQ(first_error(errors), "");
}

// A state serves one bucket at a time; what is submitted with the same state waits its turn.
TEST(AsyncReducer, TheSameStateAgainAndAgain) {
  const Errors errors = on_each(3, [&](Communicator& communicator) {
    State state(ordinary()), other(ordinary());
    std::vector<std::vector<float>> arrays(8, std::vector<float>(3000, 1.0f));
    {
      AsyncReducer reducer(communicator);
      std::vector<std::future<Report>> futures;
      for (std::size_t b = 0; b < 8; ++b) futures.push_back(reducer.allreduce(arrays[b], b == 5 ? other : state));
      for (std::size_t b = 0; b < 8; ++b) EXPECT_EQ(futures[b].get().step, b == 5 ? 1 : b > 5 ? b : b + 1);
    }
    for (const auto& x : arrays) EXPECT_EQ(x, std::vector<float>(3000, 3.0f));
  });
  EXPECT_EQ(first_error(errors), "");
}

TEST(AsyncReducer, ItsDestructorWaitsForWhatWasSubmitted) {
  const Errors errors = on_each(2, [&](Communicator& communicator) {
    State a(ordinary()), b(ordinary());
    std::vector<float> x(5000, 1.0f), y(5000, 2.0f);
    std::future<Report> first, second;
    {
      AsyncReducer reducer(communicator);
      first = reducer.allreduce(x, a);
      second = reducer.allreduce(y, b);
    }
    EXPECT_EQ(first.wait_for(std::chrono::seconds(0)), std::future_status::ready);
    EXPECT_EQ(second.wait_for(std::chrono::seconds(0)), std::future_status::ready);
    EXPECT_EQ(x, std::vector<float>(5000, 2.0f));
    EXPECT_EQ(y, std::vector<float>(5000, 4.0f));
  });
  EXPECT_EQ(first_error(errors), "");
}

// One bucket that workers call differently: an error in its future, and only there.
TEST(AsyncReducer, ADisagreementStaysInItsBucket) {
  const Errors errors = on_each(3, [&](Communicator& communicator) {
    std::vector<State> states;
    for (int b = 0; b < 6; ++b) states.emplace_back(ordinary());
    std::vector<std::vector<float>> arrays(6, std::vector<float>(2000, 1.0f));
    if (communicator.rank() == 1) arrays[2].resize(1999);
    AsyncReducer reducer(communicator);
    std::vector<std::future<Report>> futures;
    for (std::size_t b = 0; b < 6; ++b) futures.push_back(reducer.allreduce(arrays[b], states[b]));
    for (std::size_t b = 0; b < 6; ++b) {
      if (b == 2) {
        expect_refusal(ErrorCode::disagreement, "elements", [&] { futures[b].get(); });
      } else {
        futures[b].get();
        EXPECT_EQ(arrays[b], std::vector<float>(2000, 3.0f));
      }
    }
  });
  EXPECT_EQ(first_error(errors), "");
}

// Time-outs break the communicator: every bucket that was under way or waiting ends with an error, none hangs.
TEST(AsyncReducer, AStalledWorkerEndsAllBuckets) {
  const Communicators communicators = make_inprocess(2);
  StateOptions impatient = ordinary();
  impatient.timeout = kImpatient;
  std::vector<State> states;
  for (int b = 0; b < 6; ++b) states.emplace_back(impatient);
  std::vector<std::vector<float>> arrays(6, std::vector<float>(2000, 1.0f));
  AsyncReducer reducer(*communicators[0]);
  std::vector<std::future<Report>> futures;
  for (std::size_t b = 0; b < 6; ++b) futures.push_back(reducer.allreduce(arrays[b], states[b]));
  for (auto& future : futures) {
    ASSERT_EQ(future.wait_for(kPatient), std::future_status::ready);
    EXPECT_THROW(future.get(), Error);
  }
}

// The link has to be measured in the middle, by all workers at once, though buckets are under way.
TEST(AsyncReducer, ALinkIsMeasuredBetweenBuckets) {
  const int repeats = static_cast<int>(scaled(5, 2));
  for (int repeat = 0; repeat < repeats; ++repeat) {
    const Errors errors = on_each(3, [&](Communicator& communicator) {
      std::vector<State> states;
      for (int b = 0; b < 12; ++b) {
        StateOptions options = ordinary();
        if (b >= 7) options.link.reset();
        states.emplace_back(options);
      }
      std::vector<std::vector<float>> arrays(12, std::vector<float>(20'000, 1.0f));
      AsyncReducer reducer(communicator);
      std::vector<std::future<Report>> futures;
      for (std::size_t b = 0; b < 12; ++b) futures.push_back(reducer.allreduce(arrays[b], states[b]));
      for (auto& future : futures) future.get();
      for (const auto& x : arrays) EXPECT_EQ(x, std::vector<float>(20'000, 3.0f));
    });
    EXPECT_EQ(first_error(errors), "");
  }
}

TEST(AsyncReducer, AWorkerAloneIsDoneAtOnce) {
  const Communicators alone = make_inprocess(1);
  State state(ordinary());
  std::vector<float> x(100, 1.0f);
  AsyncReducer reducer(*alone[0]);
  EXPECT_EQ(reducer.allreduce(x, state).get().step, 1u);
  State wrong({.grain = 3});
  std::future<Report> refused = reducer.allreduce(x, wrong);
  expect_refusal(ErrorCode::invalid_argument, "power of two", [&] { refused.get(); });
}

}  // namespace
}  // namespace peel::testing
