// Workers that were called differently, or wrongly: every worker raises the same error, which names the difference;
// nothing was moved, and the communicator works as before.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "allreduce/known_gradients.h"
#include "allreduce/round_table.h"
#include "allreduce/workers.h"
#include "peel/allreduce.h"
#include "refusal.h"

namespace peel::testing {
namespace {

constexpr unsigned kWorkers = 3;

StateOptions ordinary() { return {.link = kSlowLink, .timeout = kPatient}; }

// Runs `call` on each worker, expects the same error everywhere, then a call that is right.
void expect_the_same_error(ErrorCode code, const std::string& fragment,
                           const std::function<void(Communicator&)>& call) {
  SCOPED_TRACE(fragment);
  const Communicators communicators = make_inprocess(kWorkers);
  const Errors errors = on_each(communicators, call);
  for (const auto& error : errors) {
    ASSERT_TRUE(error) << "a worker raised nothing";
    EXPECT_EQ(static_cast<int>(error->code()), static_cast<int>(code)) << error->what();
    expect_sentence(error->what(), fragment);
    EXPECT_STREQ(error->what(), errors[0]->what());
  }
  const Errors afterwards = on_each(communicators, [](Communicator& communicator) {
    State state(ordinary());
    std::vector<float> x(100, 1.0f);
    allreduce(communicator, x, state);
    EXPECT_EQ(x, std::vector<float>(100, 3.0f));
  });
  EXPECT_EQ(first_error(afterwards), "") << "the communicator must still work";
}

// An all-reduce of ones with one worker's options changed; x must stay as it was.
void expect_options_named(const std::string& fragment, const std::function<void(StateOptions&)>& change,
                          ErrorCode code = ErrorCode::disagreement) {
  for (unsigned other = 0; other < kWorkers; ++other) {
    expect_the_same_error(code, fragment, [&](Communicator& communicator) {
      StateOptions options = ordinary();
      if (communicator.rank() == other) change(options);
      State state(options);
      std::vector<float> x(100, 1.0f);
      try {
        allreduce(communicator, x, state);
      } catch (...) {
        EXPECT_EQ(x, std::vector<float>(100, 1.0f)) << "x was touched";
        throw;
      }
    });
  }
}

TEST(Disagreement, ABackendThatThereIsNotIsToldToAll) {
  expect_options_named(
      "its backend is not to be had", [](StateOptions& o) { o.execution.backend = static_cast<Backend>(99); },
      ErrorCode::invalid_argument);
}

TEST(Disagreement, NamesTheOptionThatDiffers) {
  expect_options_named("strategy", [](StateOptions& o) { o.strategy = Strategy::dense; });
  expect_options_named("grain", [](StateOptions& o) { o.grain = 64; });
  expect_options_named("index", [](StateOptions& o) { o.index = Index::bitmap; });
  expect_options_named("cells", [](StateOptions& o) { o.cells = CellType::fixed64; });
  expect_options_named("estimate bytes", [](StateOptions& o) { o.estimate_bytes = 1000; });
  expect_options_named("chunk bytes", [](StateOptions& o) { o.chunk_bytes = 4096; });
  expect_options_named("seed", [](StateOptions& o) { o.seed = 1; });
}

TEST(Disagreement, NamesTheValuesAndTheWorker) {
  expect_the_same_error(ErrorCode::disagreement, "elements: it is 100 on worker 0 and 101 on worker 1",
                        [](Communicator& communicator) {
                          State state(ordinary());
                          std::vector<float> x(communicator.rank() == 1 ? 101 : 100, 1.0f);
                          allreduce(communicator, x, state);
                        });
  expect_the_same_error(
      ErrorCode::disagreement, "type: it is int32 on worker 0 and float32 on worker 2", [](Communicator& communicator) {
        State state(ordinary());
        std::vector<float> x(100, 1.0f);
        std::vector<std::int32_t> y(100, 1);
        communicator.rank() == 2 ? allreduce(communicator, x, state) : allreduce(communicator, y, state);
      });
}

// By exchanges, as whoever drives them counts them, and by one that was made of a sentence.
TEST(Disagreement, NamesExchangesThatAreNotTheSame) {
  for (const bool refuses : {false, true}) {
    std::vector<State> states(kWorkers);
    std::vector<std::vector<float>> arrays(kWorkers, std::vector<float>(100, 1.0f));
    RoundTable table(refuses ? 1 : 0);
    for (unsigned w = 0; w < kWorkers; ++w) {
      const World world{.rank = w, .size = kWorkers, .link = kSlowLink, .number = !refuses && w == 1 ? 8u : 7u};
      table.join(refuses && w == 1 ? std::make_unique<Exchange>(states[w], world, "it has no memory left.")
                                   : std::make_unique<Exchange>(states[w], world, Dense(arrays[w])));
    }
    table.run();
    for (unsigned w = 0; w < kWorkers; ++w) {
      ASSERT_TRUE(table.error(w)) << "a worker raised nothing";
      expect_sentence(table.error(w)->what(), refuses
                                                  ? "Worker 1 cannot take part: it has no memory left."
                                                  : "number of the exchange: it is 7 on worker 0 and 8 on worker 1");
      EXPECT_EQ(arrays[w], std::vector<float>(100, 1.0f));
    }
  }
}

TEST(Disagreement, NamesTheView) {
  expect_the_same_error(ErrorCode::disagreement, "view", [](Communicator& communicator) {
    StateOptions options = ordinary();
    options.grain = 4;
    options.elements = 100;
    State state(options);
    std::vector<float> x(100, 1.0f);
    Sparse rows;
    communicator.rank() == 1 ? allreduce(communicator, rows, state) : allreduce(communicator, x, state);
  });
}

TEST(Disagreement, NamesTheOutcome) {
  expect_the_same_error(ErrorCode::disagreement, "outcome: it is all-reduce on worker 0 and reduce-scatter on worker 2",
                        [](Communicator& communicator) {
                          State state(ordinary());
                          std::vector<float> x(100, 1.0f);
                          communicator.rank() == 2 ? reduce_scatter(communicator, x, state)
                                                   : allreduce(communicator, x, state);
                        });
}

// Several differences, and a worker that was called wrongly besides: the wrong call is what to mend first.
TEST(Disagreement, AWrongCallIsNamedBeforeADifference) {
  expect_the_same_error(ErrorCode::invalid_argument, "Worker 2 cannot take part", [](Communicator& communicator) {
    StateOptions options = ordinary();
    if (communicator.rank() == 1) options.seed = 7;
    if (communicator.rank() == 2) options.grain = 3;
    State state(options);
    std::vector<float> x(100 + communicator.rank(), 1.0f);
    allreduce(communicator, x, state);
  });
}

TEST(WrongCall, OptionsThatNothingCanHave) {
  const auto wrong = [](const std::string& fragment, const std::function<void(StateOptions&)>& change) {
    expect_options_named(fragment, change, ErrorCode::invalid_argument);
  };
  wrong("power of two", [](StateOptions& o) { o.grain = 3; });
  wrong("power of two", [](StateOptions& o) { o.grain = 2048; });
  wrong("estimates come from sketches", [](StateOptions& o) {
    o.strategy = Strategy::split;
    o.estimate_bytes = 100;
  });
  wrong("lists cannot be combined", [](StateOptions& o) { o.index = Index::list; });
}

TEST(WrongCall, ANullPointer) {
  expect_the_same_error(ErrorCode::invalid_argument, "null pointer", [](Communicator& communicator) {
    State state(ordinary());
    std::vector<float> x(100, 1.0f);
    allreduce(communicator, Dense(communicator.rank() == 0 ? nullptr : x.data(), 100, ElementType::float32), state);
  });
}

TEST(WrongCall, AnArrayThatIsNotAligned) {
  expect_the_same_error(ErrorCode::invalid_argument, "aligned", [](Communicator& communicator) {
    State state(ordinary());
    std::vector<float> x(101, 1.0f);
    auto* bytes = reinterpret_cast<std::byte*>(x.data());
    allreduce(communicator, Dense(bytes + (communicator.rank() == 1 ? 2 : 0), 100, ElementType::float32), state);
  });
}

TEST(WrongCall, AnUnknownType) {
  expect_the_same_error(ErrorCode::invalid_argument, "type is unknown", [](Communicator& communicator) {
    State state(ordinary());
    std::vector<float> x(100, 1.0f);
    const auto type = communicator.rank() == 1 ? static_cast<ElementType>(99) : ElementType::float32;
    allreduce(communicator, Dense(x.data(), 100, type), state);
  });
}

struct BadItems {
  std::string fragment;
  std::vector<std::uint64_t> items;
};

TEST(WrongCall, SparseItemsThatAreNotRight) {
  const std::vector<BadItems> cases = {{"do not increase", {5, 3}},
                                       {"do not increase", {3, 3}},
                                       {"past the end", {3, 25}},
                                       {"past the end", {1, std::uint64_t{1} << 63}}};
  for (const BadItems& bad : cases) {
    expect_the_same_error(ErrorCode::invalid_argument, bad.fragment, [&](Communicator& communicator) {
      StateOptions options = ordinary();
      options.grain = 4;
      options.elements = 100;
      State state(options);
      const std::vector<std::uint64_t> items = communicator.rank() == 2 ? bad.items : std::vector<std::uint64_t>{1, 2};
      const std::vector<float> values(8, 1.0f);
      Sparse sum;
      sum.items = {77};
      try {
        allreduce(communicator, ConstSparse(items, values.data(), ElementType::float32), sum, state);
      } catch (...) {
        EXPECT_EQ(sum.items, std::vector<std::uint64_t>{77}) << "the sum was touched";
        throw;
      }
    });
  }
}

TEST(WrongCall, SparseValuesThatAreMissingOrNotAligned) {
  for (const bool missing : {true, false}) {
    expect_the_same_error(ErrorCode::invalid_argument, missing ? "null pointer" : "aligned",
                          [&](Communicator& communicator) {
                            StateOptions options = ordinary();
                            options.grain = 4;
                            options.elements = 100;
                            State state(options);
                            const std::vector<std::uint64_t> items = {1, 2};
                            const std::vector<float> values(9, 1.0f);
                            const std::byte* data = reinterpret_cast<const std::byte*>(values.data());
                            if (communicator.rank() == 1) data = missing ? nullptr : data + 1;
                            Sparse sum;
                            allreduce(communicator, ConstSparse(items, data, ElementType::float32), sum, state);
                          });
  }
}

TEST(WrongCall, ASparseGradientNeedsItsLengthAndGrain) {
  for (const bool has_grain : {true, false}) {
    expect_the_same_error(ErrorCode::invalid_argument, "needs .elements and .grain", [&](Communicator& communicator) {
      StateOptions options = ordinary();
      if (has_grain) options.grain = 4;
      if (!has_grain) options.elements = 100;
      State state(options);
      Sparse rows;
      allreduce(communicator, rows, state);
    });
  }
  expect_the_same_error(ErrorCode::invalid_argument, "no dense sum", [&](Communicator& communicator) {
    StateOptions options = ordinary();
    options.strategy = Strategy::dense;
    options.grain = 4;
    options.elements = 100;
    State state(options);
    Sparse rows;
    allreduce(communicator, rows, state);
  });
}

TEST(WrongCall, AReduceScatterThatCannotBe) {
  expect_the_same_error(ErrorCode::invalid_argument, "dense or split", [](Communicator& communicator) {
    StateOptions options = ordinary();
    options.strategy = Strategy::sketch;
    State state(options);
    std::vector<float> x(100, 1.0f);
    reduce_scatter(communicator, x, state);
  });
}

// One worker's state serves another exchange already: all others learn of it too.
TEST(WrongCall, AStateThatIsInUse) {
  expect_the_same_error(ErrorCode::invalid_argument, "in use", [](Communicator& communicator) {
    State state(ordinary());
    std::vector<float> x(100, 1.0f), y(100, 1.0f);
    std::unique_ptr<Exchange> other;
    if (communicator.rank() == 1) {
      other = std::make_unique<Exchange>(state, World{.rank = 1, .size = kWorkers, .link = kSlowLink}, y);
    }
    allreduce(communicator, x, state);
  });
}

TEST(WrongCall, AWorkerAloneIsToldTheSame) {
  const Communicators alone = make_inprocess(1);
  State state({.grain = 3});
  std::vector<float> x(10, 1.0f);
  expect_refusal(ErrorCode::invalid_argument, "power of two", [&] { allreduce(*alone[0], x, state); });
  State other;
  expect_refusal(ErrorCode::invalid_argument, "null pointer",
                 [&] { allreduce(*alone[0], Dense(nullptr, 10, ElementType::float32), other); });
  allreduce(*alone[0], x, other);
  EXPECT_EQ(x, std::vector<float>(10, 1.0f));
}

// Process-wide, so on all workers here; that one of several is enough is shown without threads, in state_test.cpp.
class Disabled : public ::testing::Test {
 protected:
  void SetUp() override { setenv("PEEL_DISABLE", "1", 1); }
  void TearDown() override { unsetenv("PEEL_DISABLE"); }
};

TEST_F(Disabled, EveryCallIsDense) {
  SeededDraw random(1);
  const KnownStep known = KnownStep::draw({.elements = 3000, .density = 0.01}, kWorkers, random);
  for (const Strategy strategy : {Strategy::automatic, Strategy::sketch, Strategy::split, Strategy::packed}) {
    const Errors errors = on_each(kWorkers, [&](Communicator& communicator) {
      StateOptions options = ordinary();
      options.strategy = strategy;
      State state(options);
      for (int step = 0; step < 2; ++step) {
        Array x(known.workers[communicator.rank()].dense(ElementType::float32), ElementType::float32);
        const Report report = allreduce(communicator, x.view(), state);
        EXPECT_EQ(report.strategy, Strategy::dense);
        EXPECT_EQ(report.exactness, Exactness::as_dense);
        EXPECT_FALSE(report.reset);
        EXPECT_EQ(difference(known.sum, ElementType::float32, x.bytes()), "");
      }
      options.strategy = Strategy::automatic;
      State shares(options);
      std::vector<float> x(10, 1.0f);
      EXPECT_EQ(reduce_scatter(communicator, x, shares).strategy, Strategy::dense);
      options.grain = 8;
      options.elements = 3000;
      State sparse(options);
      Sparse rows = known.workers[communicator.rank()].sparse(ElementType::float32, 8);
      EXPECT_EQ(allreduce(communicator, rows, sparse).strategy, Strategy::gather) << "what is dense for rows";
      EXPECT_EQ(difference(known, 8, rows), "");
    });
    EXPECT_EQ(first_error(errors), "");
  }
}

TEST_F(Disabled, NoughtMeansEnabled) {
  setenv("PEEL_DISABLE", "0", 1);
  const Errors errors = on_each(2, [&](Communicator& communicator) {
    StateOptions options = ordinary();
    options.strategy = Strategy::split;
    State state(options);
    std::vector<float> x(100, 1.0f);
    EXPECT_EQ(allreduce(communicator, x, state).strategy, Strategy::split);
  });
  EXPECT_EQ(first_error(errors), "");
}

// Disabling for a while must not make workers forget, or disagree, when it is over.
TEST_F(Disabled, CompressionComesBackWhenItIsOver) {
  unsetenv("PEEL_DISABLE");
  SeededDraw random(1);
  const KnownStep known = KnownStep::draw({.elements = 30'000, .density = 0.002}, 2, random);
  const Communicators communicators = make_inprocess(2);
  std::vector<State> states;
  for (int w = 0; w < 2; ++w) states.emplace_back(ordinary());
  const auto step = [&](Strategy expected_not, bool equal) {
    const Errors errors = on_each(communicators, [&](Communicator& communicator) {
      const unsigned rank = communicator.rank();
      Array x(known.workers[rank].dense(ElementType::float32), ElementType::float32);
      const Report report = allreduce(communicator, x.view(), states[rank]);
      EXPECT_EQ(report.strategy == expected_not, equal) << name(report.strategy);
      EXPECT_FALSE(report.reset);
      EXPECT_EQ(difference(known.sum, ElementType::float32, x.bytes()), "");
    });
    EXPECT_EQ(first_error(errors), "");
  };
  step(Strategy::dense, false);
  setenv("PEEL_DISABLE", "1", 1);
  step(Strategy::dense, true);
  unsetenv("PEEL_DISABLE");
  step(Strategy::dense, false);
}

}  // namespace
}  // namespace peel::testing
