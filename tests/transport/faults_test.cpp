// Workers that do not come, stop half way, or call something else: the others get an error within the time-out.
#include <gtest/gtest.h>

#include "transport/crowd.h"
#include "transport/known_collectives.h"

namespace peel {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using test::run_crowd;

constexpr milliseconds kTimeout{200};

constexpr Collective::Kind kKinds[] = {Collective::Kind::sum, Collective::Kind::bit_or, Collective::Kind::all_to_all,
                                       Collective::Kind::all_gather};

// A collective of this kind with its memory.
struct Ask {
  std::vector<std::uint64_t> data;
  Collective what;

  Ask(Collective::Kind kind, unsigned workers, std::size_t words) : data(words, 1) {
    what.kind = kind;
    what.type = ElementType::int64;
    const auto bytes = std::as_writable_bytes(std::span(data));
    if (kind == Collective::Kind::sum || kind == Collective::Kind::bit_or) {
      what.data = bytes;
    } else {
      what.send.assign(kind == Collective::Kind::all_gather ? 1 : workers, bytes);
    }
  }
};

// Worker 2 exists but never calls. Lengths: one step, two steps.
TEST(Faults, AWorkerThatNeverComesIsNamedInTime) {
  constexpr unsigned kAbsent = 2;
  for (const Collective::Kind kind : kKinds) {
    for (const std::size_t words : {8, 100'000}) {
      std::vector<std::unique_ptr<Communicator>> communicators = make_inprocess(4);
      const steady_clock::time_point begin = steady_clock::now();
      const auto errors = run_crowd(communicators, [&](Communicator& communicator) {
        if (communicator.rank() == kAbsent) return;
        Ask ask(kind, 4, words);
        perform(communicator, ask.what, 0, kTimeout);
      });
      EXPECT_LT(steady_clock::now() - begin, kTimeout * 20);
      for (unsigned worker = 0; worker < 4; ++worker) {
        if (worker == kAbsent) continue;
        ASSERT_TRUE(errors[worker]) << name(kind) << " of " << words << " on " << worker;
        EXPECT_EQ(errors[worker]->code(), ErrorCode::timeout);
        const std::string sentence = errors[worker]->what();
        EXPECT_NE(sentence.find("Worker 2 sent nothing for 0.2"), std::string::npos) << sentence;
        EXPECT_NE(sentence.find(name(kind)), std::string::npos) << sentence;
      }
    }
  }
}

TEST(Faults, AWorkerThatNeverComesToACrowdEndsIt) {
  const auto errors = run_crowd(16, [](Communicator& communicator) {
    if (communicator.rank() == 5) return;
    Ask ask(Collective::Kind::bit_or, 16, 8);
    perform(communicator, ask.what, 0, kTimeout);
  });
  for (unsigned worker = 0; worker < 16; ++worker) EXPECT_EQ(errors[worker].has_value(), worker != 5);
}

TEST(Faults, BreakTheCommunicator) {
  const auto errors = run_crowd(2, [](Communicator& communicator) {
    if (communicator.rank() == 1) return;
    Ask ask(Collective::Kind::sum, 2, 8);
    EXPECT_THROW(perform(communicator, ask.what, 0, kTimeout), Error);
    const steady_clock::time_point begin = steady_clock::now();
    try {
      perform(communicator, ask.what, 1, milliseconds(60'000));
      ADD_FAILURE() << "a broken communicator began a collective";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::transport);
      EXPECT_NE(std::string(error.what()).find("make a new one"), std::string::npos) << error.what();
    }
    EXPECT_LT(steady_clock::now() - begin, milliseconds(1000));
  });
  EXPECT_FALSE(errors[0]);
}

// The worker begins, is then destroyed: nobody waits for the time-out.
TEST(Faults, ADestroyedCommunicatorIsNoticedAtOnce) {
  std::vector<std::unique_ptr<Communicator>> communicators = make_inprocess(3);
  const steady_clock::time_point begin = steady_clock::now();
  const auto errors = run_crowd(communicators, [&](Communicator& communicator) {
    Ask ask(Collective::Kind::sum, 3, 1'000'000);
    if (communicator.rank() == 1) {
      (void)communicator.start(ask.what, 0, milliseconds(60'000))->test();
      communicators[1].reset();
    } else {
      perform(communicator, ask.what, 0, milliseconds(60'000));
    }
  });
  EXPECT_LT(steady_clock::now() - begin, milliseconds(20'000));
  for (const unsigned worker : {0, 2}) {
    ASSERT_TRUE(errors[worker]);
    EXPECT_EQ(errors[worker]->code(), ErrorCode::transport) << errors[worker]->what();
  }
}

// An operation that is given up frees its memory at once, while others still send to it and read from it.
TEST(Faults, AnOperationGivenUpHalfWayTouchesNothingLater) {
  for (const Collective::Kind kind : kKinds) {
    const auto errors = run_crowd(4, [&](Communicator& communicator) {
      auto ask = std::make_unique<Ask>(kind, 4, 500'000);
      std::unique_ptr<Operation> operation = communicator.start(ask->what, 0, kTimeout);
      for (int test = 0; test < 3; ++test) {
        EXPECT_FALSE(operation->test() && communicator.rank() == 3);
        communicator.relax();
      }
      if (communicator.rank() == 3) {
        operation.reset();
        ask.reset();
        Ask again(kind, 4, 8);
        EXPECT_THROW((void)communicator.start(again.what, 1, kTimeout), Error);
        return;
      }
      while (!operation->test()) communicator.relax();
    });
    // How far the others got depends on the kind: all ends well or with an error, but it ends.
    EXPECT_FALSE(errors[3]) << errors[3]->what();
  }
}

TEST(Faults, DifferentLengthsAreToldApart) {
  for (const std::size_t words : {8, 100'000}) {
    const auto errors = run_crowd(3, [&](Communicator& communicator) {
      Ask ask(Collective::Kind::sum, 3, words + communicator.rank() / 2 * 16);
      perform(communicator, ask.what, 0, milliseconds(2000));
    });
    bool told = false;
    for (const auto& error : errors) {
      ASSERT_TRUE(error);
      told |= error->code() == ErrorCode::disagreement;
    }
    EXPECT_TRUE(told);
  }
}

// A worker that computes for longer than the time-out between two tests was not kept waiting.
TEST(Faults, TimeSpentElsewhereIsNotWaiting) {
  const auto errors = run_crowd(2, [](Communicator& communicator) {
    Ask ask(Collective::Kind::sum, 2, 8);
    const std::unique_ptr<Operation> operation = communicator.start(ask.what, 0, kTimeout);
    if (communicator.rank() == 0) {
      (void)operation->test();
      std::this_thread::sleep_for(kTimeout * 3);
    }
    while (!operation->test()) communicator.relax();
  });
  EXPECT_FALSE(errors[0]) << errors[0]->what();
}

}  // namespace
}  // namespace peel
