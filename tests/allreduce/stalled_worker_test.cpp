// A worker that does not come, or goes: the others get an error within the time-out, and never hang. And calls on
// different communicators do not get in each other's way.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

#include "allreduce/known_gradients.h"
#include "allreduce/workers.h"
#include "peel/allreduce.h"
#include "refusal.h"
#include "scale.h"

namespace peel::testing {
namespace {

using Clock = std::chrono::steady_clock;

TEST(StalledWorker, OneThatNeverCallsIsATimeOutOnTheOthers) {
  for (const Strategy strategy : {Strategy::automatic, Strategy::dense, Strategy::sketch}) {
    Communicators communicators = make_inprocess(4);
    const std::unique_ptr<Communicator> silent = std::move(communicators[2]);
    communicators.erase(communicators.begin() + 2);
    const Clock::time_point begin = Clock::now();
    const Errors errors = on_each(communicators, [&](Communicator& communicator) {
      State state({.strategy = strategy, .link = kSlowLink, .timeout = kImpatient});
      std::vector<float> x(1000, 1.0f);
      allreduce(communicator, x, state);
    });
    EXPECT_LT(Clock::now() - begin, kPatient);
    for (const auto& error : errors) {
      ASSERT_TRUE(error) << "a worker raised nothing";
      EXPECT_TRUE(error->code() == ErrorCode::timeout || error->code() == ErrorCode::transport) << error->what();
      expect_sentence(error->what(), "orker");
    }
    EXPECT_TRUE(std::any_of(errors.begin(), errors.end(),
                            [](const auto& error) { return error && error->code() == ErrorCode::timeout; }));
  }
}

// After the opening: it took part in what was agreed, and stopped in the middle of the exchange.
TEST(StalledWorker, OneThatStopsInTheMiddleIsATimeOutOnTheOthers) {
  for (const Strategy strategy : {Strategy::packed, Strategy::split, Strategy::sketch, Strategy::gather}) {
    std::latch others(2);
    const Errors errors = on_each(3, [&](Communicator& communicator) {
      State state({.strategy = strategy, .link = kSlowLink, .chunk_bytes = 8192, .timeout = kImpatient});
      std::vector<float> x(20'000, 1.0f);
      if (communicator.rank() != 1) {
        try {
          allreduce(communicator, x, state);
        } catch (...) {
          others.count_down();
          throw;
        }
        others.count_down();
        return;
      }
      Exchange exchange(state, {.rank = 1, .size = 3, .link = kSlowLink}, x);
      Collective* opening = exchange.next();
      perform(communicator, *opening, communicator.open_channel(), kPatient);
      exchange.complete(*opening);
      others.wait();  // it is there, and does nothing
    });
    for (const unsigned w : {0u, 2u}) {
      ASSERT_TRUE(errors[w]) << name(strategy) << ", worker " << w;
      EXPECT_TRUE(errors[w]->code() == ErrorCode::timeout || errors[w]->code() == ErrorCode::transport);
    }
  }
}

TEST(StalledWorker, OneThatIsGoneIsAnErrorOnTheOthers) {
  Communicators communicators = make_inprocess(3);
  communicators[1].reset();
  Communicators others;
  others.push_back(std::move(communicators[0]));
  others.push_back(std::move(communicators[2]));
  const Errors errors = on_each(others, [&](Communicator& communicator) {
    State state({.link = kSlowLink, .timeout = kPatient});
    std::vector<float> x(1000, 1.0f);
    allreduce(communicator, x, state);
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    expect_sentence(error->what(), "Worker 1 is gone");
  }
}

// After a failure a communicator says so at once, and a state works on with another communicator.
TEST(StalledWorker, TheStateSurvivesTheCommunicator) {
  std::vector<State> states;
  for (int w = 0; w < 2; ++w) states.emplace_back(StateOptions{.link = kSlowLink, .timeout = kImpatient});
  SeededDraw random(2);
  const KnownStep known = KnownStep::draw({.elements = 2000}, 2, random);
  const auto reduce = [&](Communicator& communicator) {
    Array x(known.workers[communicator.rank()].dense(ElementType::float32), ElementType::float32);
    allreduce(communicator, x.view(), states[communicator.rank()]);
    EXPECT_EQ(difference(known.sum, ElementType::float32, x.bytes()), "");
  };
  EXPECT_EQ(first_error(on_each(2, reduce)), "");
  const Communicators broken = make_inprocess(2);
  std::vector<float> x(2000, 1.0f);
  expect_refusal(ErrorCode::timeout, "Worker 1", [&] { allreduce(*broken[0], x, states[0]); });
  expect_refusal(ErrorCode::transport, "cannot be used any more", [&] { allreduce(*broken[0], x, states[0]); });
  EXPECT_EQ(first_error(on_each(2, reduce)), "");
}

// Each worker has two threads, each with a communicator of its own; they start in any order and share nothing.
TEST(TwoCommunicators, InterleaveFreely) {
  constexpr unsigned kWorkers = 3;
  const int steps = static_cast<int>(scaled(20, 6));
  SeededDraw random(12);
  std::vector<KnownStep> known;
  for (int i = 0; i < 2; ++i) known.push_back(KnownStep::draw({.elements = 9000}, kWorkers, random));
  const std::vector<Communicators> both = [] {
    std::vector<Communicators> two;
    for (int i = 0; i < 2; ++i) two.push_back(make_inprocess(kWorkers));
    return two;
  }();
  std::vector<Errors> errors(2);
  const auto run = [&](std::size_t which, Strategy strategy) {
    errors[which] = on_each(both[which], [&](Communicator& communicator) {
      State state({.strategy = strategy, .link = kSlowLink, .chunk_bytes = 8192, .timeout = kPatient});
      for (int step = 0; step < steps; ++step) {
        const KnownStep& mine = known[which];
        Array x(mine.workers[communicator.rank()].dense(ElementType::float32), ElementType::float32);
        allreduce(communicator, x.view(), state);
        EXPECT_EQ(difference(mine.sum, ElementType::float32, x.bytes()), "");
      }
    });
  };
  std::thread other([&] { run(1, Strategy::sketch); });
  run(0, Strategy::automatic);
  other.join();
  EXPECT_EQ(first_error(errors[0]), "");
  EXPECT_EQ(first_error(errors[1]), "");
}

// One thread of each worker alternates between two communicators, in another order on each worker: exchanges that are
// driven by hand need not be begun together.
TEST(TwoCommunicators, AlternateInOneThread) {
  constexpr unsigned kWorkers = 2;
  const Communicators first = make_inprocess(kWorkers), second = make_inprocess(kWorkers);
  const Errors errors = on_each(first, [&](Communicator& communicator) {
    const unsigned rank = communicator.rank();
    State a({.link = kSlowLink, .timeout = kPatient}), b({.link = kSlowLink, .timeout = kPatient});
    for (int step = 0; step < 10; ++step) {
      std::vector<float> x(500, 1.0f), y(700, 2.0f);
      AsyncReducer reducer(*first[rank]);
      std::future<Report> under_way = reducer.allreduce(x, a);
      allreduce(*second[rank], y, b);
      under_way.get();
      EXPECT_EQ(x, std::vector<float>(500, 2.0f));
      EXPECT_EQ(y, std::vector<float>(700, 4.0f));
    }
  });
  EXPECT_EQ(first_error(errors), "");
}

}  // namespace
}  // namespace peel::testing
