// What a state remembers: saved and restored it goes on as if nothing had happened; restored on some workers only it is
// noticed and mended; damaged bytes are refused, every one of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "allreduce/history.h"
#include "allreduce/opening.h"
#include "allreduce/small_world.h"
#include "peel/state.h"
#include "refusal.h"
#include "scale.h"

namespace peel::testing {
namespace {

constexpr unsigned kWorkers = 3;
constexpr ElementType kType = ElementType::float32;

StateOptions options_of(Strategy strategy) { return {.strategy = strategy, .chunk_bytes = 8192}; }

KnownStep draw_step(std::uint64_t seed, double density = 0.02) {
  SeededDraw random(seed);
  return KnownStep::draw({.elements = 9000, .type = kType, .pattern = Pattern::rows, .density = density, .phase = 7},
                         kWorkers, random);
}

class SavedState : public ::testing::TestWithParam<Strategy> {};
INSTANTIATE_TEST_SUITE_P(Strategies, SavedState,
                         ::testing::Values(Strategy::automatic, Strategy::packed, Strategy::sketch, Strategy::split,
                                           Strategy::gather),
                         [](const auto& tested) { return std::string(name(tested.param)); });

TEST_P(SavedState, GoesOnAsIfNothingHadHappened) {
  SmallWorld original(kWorkers, options_of(GetParam()));
  for (std::uint64_t step = 0; step < 4; ++step) original.step(draw_step(step), kType, View::dense, step);
  SmallWorld restored(kWorkers, options_of(GetParam()));
  for (unsigned w = 0; w < kWorkers; ++w) {
    const std::vector<std::byte> bytes = original.states()[w].serialise();
    restored.states()[w].restore(bytes);
    EXPECT_EQ(restored.states()[w].serialise(), bytes);
  }
  for (std::uint64_t step = 4; step < 8; ++step) {
    const Report a = original.step(draw_step(step), kType, View::dense, step);
    const Report b = restored.step(draw_step(step), kType, View::dense, step);
    EXPECT_EQ(a.step, step + 1);
    EXPECT_EQ(b.step, step + 1);
    EXPECT_EQ(a.strategy, b.strategy);
    EXPECT_EQ(a.grain, b.grain);
    EXPECT_EQ(a.bytes_sent, b.bytes_sent);
    EXPECT_EQ(a.rounds, b.rounds);
    EXPECT_FALSE(b.reset);
  }
  for (unsigned w = 0; w < kWorkers; ++w) {
    EXPECT_EQ(original.states()[w].serialise(), restored.states()[w].serialise());
  }
}

TEST_P(SavedState, RestoredOnSomeWorkersOnlyIsNoticedAndMended) {
  SmallWorld world(kWorkers, options_of(GetParam()));
  for (std::uint64_t step = 0; step < 4; ++step) world.step(draw_step(step), kType, View::dense, step);
  world.states()[1] = State(options_of(GetParam()));  // this one starts anew
  const Report report = world.step(draw_step(9), kType, View::dense, 9);
  EXPECT_TRUE(report.reset);
  // From then on they agree again, though worker 1 counts other steps.
  EXPECT_FALSE(world.step(draw_step(10), kType, View::dense, 10).reset);
  EXPECT_EQ(world.states()[0].last().step, 6u);
  EXPECT_EQ(world.states()[1].last().step, 2u);
  EXPECT_EQ(world.states()[1].totals().resets, 1u);
}

// Another array, type or number of workers: nothing that was learned applies, and nothing goes wrong.
TEST_P(SavedState, AnotherArrayStartsAnew) {
  SmallWorld world(kWorkers, options_of(GetParam()));
  SeededDraw random(4);
  for (const std::uint64_t elements : {9000u, 100u, 0u, 20'000u, 9000u}) {
    for (const ElementType type : {ElementType::float32, ElementType::int8}) {
      for (int step = 0; step < 2; ++step) {
        const Report report =
            world.step(KnownStep::draw({.elements = elements, .type = type}, kWorkers, random), type, View::dense, 1);
        EXPECT_FALSE(report.reset);
      }
    }
  }
}

// A checkpoint of a run with another grain: rows of 64 must not be read as rows of 16.
TEST(RestoredState, OfAnotherGrainStartsAnew) {
  SeededDraw random(4);
  const KnownStep known =
      KnownStep::draw({.elements = 9000, .pattern = Pattern::rows, .density = 0.05}, kWorkers, random);
  for (const View view : {View::sparse, View::dense}) {
    SmallWorld saved(kWorkers, {.strategy = Strategy::split, .grain = 64, .elements = 9000});
    saved.step(known, kType, view, 1);
    SmallWorld other(kWorkers, {.strategy = Strategy::split, .grain = 16, .elements = 9000});
    for (unsigned w = 0; w < kWorkers; ++w) other.states()[w].restore(saved.states()[w].serialise());
    EXPECT_EQ(other.step(known, kType, view, 2).grain, 16u);
  }
}

// A state of version 1, as four steps of options_of(sketch) left it on worker 0 (tests/data/README.md). Whoever changes
// the format keeps this file, and reads it or refuses it in a sentence.
std::vector<std::byte> saved_by_version1() {
  std::ifstream file(std::string(PEEL_TEST_DIR) + "/data/state_version1.bin", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const auto* first = reinterpret_cast<const std::byte*>(bytes.data());
  return {first, first + bytes.size()};
}

TEST(RestoredState, OfVersion1GoesOn) {
  const std::vector<std::byte> bytes = saved_by_version1();
  ASSERT_EQ(bytes.size(), 328u);
  SmallWorld world(kWorkers, options_of(Strategy::sketch));
  for (State& state : world.states()) {
    state.restore(bytes);
    EXPECT_EQ(state.serialise(), bytes);
    EXPECT_EQ(state.union_elements(), 256u);
  }
  const Report report = world.step(draw_step(4), kType, View::dense, 4);
  EXPECT_EQ(report.step, 5u);
  EXPECT_EQ(report.strategy, Strategy::sketch);
  EXPECT_FALSE(report.reset);
}

TEST(RestoredState, OfAnotherVersionIsRefused) {
  std::vector<std::byte> bytes = saved_by_version1();
  bytes[4] = std::byte{2};  // the version; the checksum is that of the changed bytes
  const std::uint64_t checksum = XXH3_64bits(bytes.data(), bytes.size() - sizeof(checksum));
  std::memcpy(bytes.data() + bytes.size() - sizeof(checksum), &checksum, sizeof(checksum));
  State state;
  expect_refusal(ErrorCode::unsupported, "saved by another version; start with a new one",
                 [&] { state.restore(bytes); });
}

std::vector<std::byte> some_bytes() {
  SmallWorld world(kWorkers, options_of(Strategy::sketch));
  for (std::uint64_t step = 0; step < 2; ++step) world.step(draw_step(step), kType, View::dense, step);
  return world.states()[0].serialise();
}

TEST(DamagedState, EveryFlippedBitIsRefused) {
  std::vector<std::byte> bytes = some_bytes();
  State state;
  const std::vector<std::byte> before = state.serialise();
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      bytes[i] ^= std::byte(1 << bit);
      EXPECT_THROW(state.restore(bytes), Error) << "byte " << i << ", bit " << bit;
      bytes[i] ^= std::byte(1 << bit);
    }
  }
  EXPECT_EQ(state.serialise(), before) << "a refused restore changed the state";
  EXPECT_NO_THROW(state.restore(bytes));
}

TEST(DamagedState, EveryShorterOrLongerOneIsRefused) {
  std::vector<std::byte> bytes = some_bytes();
  State state;
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    expect_refusal(ErrorCode::corrupt_message, "not a saved state",
                   [&] { state.restore(std::span<const std::byte>(bytes).first(size)); });
  }
  bytes.push_back(std::byte{0});
  expect_refusal(ErrorCode::corrupt_message, "not a saved state", [&] { state.restore(bytes); });
}

// Half of what a step learns is no checkpoint, and what it works on must not change under it.
TEST(BusyState, IsNeitherSavedNorRestored) {
  State state;
  const std::vector<std::byte> before = state.serialise();
  std::vector<float> x(100, 1.0F);
  {
    Exchange exchange(state, {.rank = 0, .size = 2}, Dense(x));
    expect_refusal(ErrorCode::invalid_argument, "in use by an exchange", [&] { (void)state.serialise(); });
    expect_refusal(ErrorCode::invalid_argument, "in use by an exchange", [&] { state.restore(before); });
  }
  EXPECT_NO_THROW((void)state.serialise());
  EXPECT_NO_THROW(state.restore(before));
}

// Threads that begin an exchange at the same moment: one of them gets the state, and the other is refused. They meet by
// looking at a number, not in a barrier that wakes them one after another.
TEST(BusyState, IsGivenToOneOfManyThreads) {
  constexpr unsigned kThreads = 2;
  const std::uint64_t rounds = scaled(10'000, 500);
  State state;
  std::vector<std::atomic<unsigned>> begun(rounds), ended(rounds), held(rounds);
  const auto meet = [](std::atomic<unsigned>& arrived) {
    ++arrived;
    for (unsigned looks = 1; arrived < kThreads; ++looks) {
      if (looks % 1000 == 0) std::this_thread::yield();
    }
  };
  const auto begin_exchanges = [&] {
    std::vector<float> x(100, 1.0F);
    for (std::uint64_t round = 0; round < rounds; ++round) {
      meet(begun[round]);
      Exchange exchange(state, {.rank = 0, .size = 2}, Dense(x));
      const Collective& opening = *exchange.next();
      const auto* words = reinterpret_cast<const std::uint64_t*>(opening.data.data());
      if ((words[4] & detail::kOpeningRefused) == 0) ++held[round];
      meet(ended[round]);
    }
  };
  std::thread other(begin_exchanges);
  begin_exchanges();
  other.join();
  for (std::uint64_t round = 0; round < rounds; ++round) ASSERT_EQ(held[round], 1u) << "round " << round;
}

TEST(FreshState, SurvivesItsSerialisedForm) {
  State state;
  const std::vector<std::byte> bytes = state.serialise();
  state.restore(bytes);
  EXPECT_EQ(state.serialise(), bytes);
}

TEST(StateTotals, AddUpTheReports) {
  SmallWorld world(kWorkers, options_of(Strategy::sketch));
  Totals sum;
  for (std::uint64_t step = 0; step < 5; ++step) {
    sum.add(world.step(draw_step(step, step == 3 ? 0.4 : 0.02), kType, View::dense, step));
  }
  const Totals& totals = world.states()[0].totals();
  EXPECT_EQ(totals.steps, 5u);
  EXPECT_EQ(totals.bytes_sent, sum.bytes_sent);
  EXPECT_EQ(totals.dense_bytes, 5 * std::uint64_t{9000 * 4 * 4 / 3});
  EXPECT_EQ(totals.items, sum.items);
  EXPECT_EQ(totals.repaired, sum.repaired);
  EXPECT_GT(totals.repaired, 0u);
  EXPECT_EQ(world.states()[0].last().step, 5u);
}

TEST(StateLog, HearsOfWhatIsOutOfTheOrdinary) {
  std::vector<std::string> heard;
  StateOptions options = options_of(Strategy::sketch);
  options.log = [&](std::string_view sentence) { heard.emplace_back(sentence); };
  SmallWorld world(kWorkers, options);
  world.step(draw_step(1), kType, View::dense, 1);
  world.step(draw_step(2), kType, View::dense, 2);
  EXPECT_TRUE(heard.empty()) << heard[0];
  world.step(draw_step(3, 0.5), kType, View::dense, 3);
  ASSERT_FALSE(heard.empty());
  EXPECT_NE(heard[0].find("did not peel"), std::string::npos) << heard[0];
}

// What the choice between split and gather is made by: the items of one worker, on average.
TEST(LearnedState, KnowsHowManyItemsAWorkerHas) {
  for (const Strategy strategy : {Strategy::split, Strategy::gather, Strategy::packed, Strategy::sketch}) {
    SmallWorld world(kWorkers, {.strategy = strategy, .grain = 1});
    SeededDraw random(5);
    const KnownStep known = KnownStep::draw({.elements = 9000, .density = 0.05}, kWorkers, random);
    world.step(known, kType, View::dense, 1);
    std::uint64_t all = 0, most = 0;
    for (const KnownGradient& worker : known.workers) {
      all += worker.nonzeros();
      most = std::max(most, worker.nonzeros());
    }
    const detail::ChunkHistory& history = world.states()[1].data().chunks[0];
    EXPECT_EQ(history.items, known.union_items(1).size());
    if (strategy == Strategy::split || strategy == Strategy::gather) {
      EXPECT_EQ(history.own_items, (all + kWorkers - 1) / kWorkers) << name(strategy);
    } else {  // by the OR of vitals
      EXPECT_GE(history.own_items, most) << name(strategy);
      EXPECT_LE(history.own_items, most * 142 / 100 + 1) << name(strategy);
    }
  }
}

// A union that is dense is not looked at in every step: counting grains costs as much as the sum saves.
TEST(StateOfADenseArray, IsLookedAtRarely) {
  SmallWorld world(2, {.grain = 0});
  SeededDraw random(3);
  const KnownStep full = KnownStep::draw({.elements = 5000, .pattern = Pattern::full}, 2, random);
  Report report;
  for (std::uint64_t step = 0; step < 20; ++step) report = world.step(full, kType, View::dense, step);
  ASSERT_EQ(report.strategy, Strategy::dense);
  EXPECT_GT(world.states()[0].data().chunks[0].steady, 10u) << "it was looked at a moment ago";
  // But often enough to notice when it is sparse again.
  const KnownStep sparse = KnownStep::draw({.elements = 5000, .density = 0.005}, 2, random);
  for (std::uint64_t step = 0; step < 50; ++step) report = world.step(sparse, kType, View::dense, step);
  EXPECT_NE(report.strategy, Strategy::dense);
}

// The same with a grain that was given, so that none is looked for.
TEST(StateOfADenseArray, LeavesDenseAgainWithAGivenGrain) {
  SmallWorld world(2, {.grain = 8});
  SeededDraw random(3);
  const KnownStep full = KnownStep::draw({.elements = 5000, .pattern = Pattern::full}, 2, random);
  Report report;
  for (std::uint64_t step = 0; step < 5; ++step) report = world.step(full, kType, View::dense, step);
  ASSERT_EQ(report.strategy, Strategy::dense);
  const KnownStep sparse =
      KnownStep::draw({.elements = 5000, .pattern = Pattern::rows, .density = 0.01, .row = 8}, 2, random);
  for (std::uint64_t step = 0; step < 50; ++step) report = world.step(sparse, kType, View::dense, step);
  EXPECT_NE(report.strategy, Strategy::dense);
}

// PEEL_DISABLE on one of the workers is enough: the flag travels in the opening.
TEST(DisabledOnOneWorker, MakesEveryWorkerDense) {
  SmallWorld world(kWorkers, options_of(Strategy::split));
  world.step(draw_step(1), kType, View::dense, 1);
  const KnownStep known = draw_step(2);
  RoundTable table(3);
  std::vector<Array> arrays;
  for (unsigned w = 0; w < kWorkers; ++w) arrays.emplace_back(known.workers[w].dense(kType), kType);
  for (unsigned w = 0; w < kWorkers; ++w) {
    if (w == 1) setenv("PEEL_DISABLE", "1", 1);
    table.join(std::make_unique<Exchange>(world.states()[w], world.world(w), arrays[w].view()));
    unsetenv("PEEL_DISABLE");
  }
  table.run();
  for (unsigned w = 0; w < kWorkers; ++w) {
    ASSERT_FALSE(table.error(w));
    EXPECT_EQ(table.report(w).strategy, Strategy::dense);
    EXPECT_EQ(difference(known.sum, kType, arrays[w].bytes()), "");
  }
  EXPECT_EQ(world.step(draw_step(4), kType, View::dense, 4).strategy, Strategy::split);
}

}  // namespace
}  // namespace peel::testing
