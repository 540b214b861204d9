// States of exchanges on a device, over time: what they learn of a union that comes and goes, workers whose states
// differ or that are told to sum as others do, and communicators that end before their states.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "allreduce/history.h"
#include "cuda/device_world.h"

namespace peel::testing {
namespace {

constexpr unsigned kWorkers = 2;
constexpr std::uint64_t kElements = 60'001;  // in chunks of 64 KiB there are four: more than slots
constexpr std::uint64_t kChunkBytes = 65'536;
constexpr Strategy kAll[] = {Strategy::automatic, Strategy::dense, Strategy::packed,
                             Strategy::sketch,    Strategy::split, Strategy::gather};

KnownStep draw_step(SeededDraw& random, double density = 0.02) {
  return KnownStep::draw({.elements = kElements, .density = density}, kWorkers, random);
}

// Values at the very end of the array, the same ones on all workers.
KnownStep sparse_tail(unsigned items) {
  KnownStep step{std::vector<KnownGradient>(kWorkers, KnownGradient(kElements)), KnownGradient(kElements)};
  for (KnownGradient& worker : step.workers) {
    for (unsigned i = 0; i < items; ++i) worker[kElements - 1 - 3 * i] = 5;
    step.sum.add(worker);
  }
  return step;
}

// With a grain that was given nobody looks for one, and a dense sum is counted once in 32 steps.
TEST(DeviceStates, LeaveDenseWhenTheUnionShrinksAndComeBack) {
  constexpr unsigned kItems = 37;
  DeviceWorld world(kWorkers, {.grain = 1});
  SeededDraw random(41);
  const KnownStep full = KnownStep::draw({.elements = kElements, .pattern = Pattern::full}, kWorkers, random);
  const KnownStep tail = sparse_tail(kItems);
  expect_sum(world, tail);
  expect_sum(world, tail);
  EXPECT_NE(world.report().strategy, Strategy::dense);
  for (unsigned turn = 0; turn < 2; ++turn) {
    SCOPED_TRACE("turn " + std::to_string(turn));
    for (unsigned i = 0; i < 3; ++i) expect_sum(world, full);
    ASSERT_EQ(world.report().strategy, Strategy::dense);
    unsigned steps = 0;
    for (; steps < 40 && world.report().strategy == Strategy::dense; ++steps) expect_sum(world, tail);
    ASSERT_NE(world.report().strategy, Strategy::dense) << "it stays dense for " << steps << " steps";
    EXPECT_GT(steps, 20u) << "a dense sum is counted too often";
    EXPECT_EQ(world.report().items, kItems);
    for (State& state : world.states()) EXPECT_EQ(state.data().chunks[0].items, kItems);
  }
}

// The count that ends it, at the step that makes it: exact, and scaled to one worker's items.
TEST(DeviceStates, CountTheItemsOfADenseSum) {
  DeviceWorld world(kWorkers, {.grain = 1});
  SeededDraw random(43);
  for (unsigned i = 0; i < 3; ++i) {
    expect_sum(world, KnownStep::draw({.elements = kElements, .pattern = Pattern::full}, kWorkers, random));
  }
  ASSERT_EQ(world.report().strategy, Strategy::dense);
  const KnownStep step = draw_step(random);
  const detail::ChunkHistory& history = world.states()[0].data().chunks[0];
  for (unsigned i = 0; i < 40 && history.items > kElements / 2; ++i) expect_sum(world, step);
  EXPECT_EQ(world.report().strategy, Strategy::dense);
  EXPECT_EQ(history.items, step.sum.nonzeros());
  EXPECT_LE(history.own_items, history.items);
  EXPECT_GT(history.own_items, 0u);
}

// The flag of one worker is enough. What the others had encoded by then is dropped, and averages are taken once.
TEST(DeviceStates, AreLeftAloneWhereOneWorkerIsDisabled) {
  for (const Strategy strategy : kAll) {
    SCOPED_TRACE(name(strategy));
    SeededDraw random(47);
    DeviceWorld world(kWorkers, {.strategy = strategy, .average = true, .chunk_bytes = kChunkBytes});
    for (unsigned i = 0; i < 2; ++i) expect_multiple(world, draw_step(random), 0.5);
    const Strategy before = world.report().strategy;
    EXPECT_EQ(before == Strategy::dense, strategy == Strategy::dense);
    world.entering = [](unsigned worker) {
      if (worker == 1) {
        setenv("PEEL_DISABLE", "1", 1);
      } else {
        unsetenv("PEEL_DISABLE");
      }
    };
    expect_multiple(world, draw_step(random), 0.5);
    unsetenv("PEEL_DISABLE");
    world.entering = {};
    for (unsigned w = 0; w < kWorkers; ++w) {
      EXPECT_EQ(world.table().report(w).strategy, Strategy::dense);
      EXPECT_EQ(world.table().report(w).exactness, Exactness::as_dense);
      EXPECT_FALSE(world.table().report(w).reset);
    }
    expect_multiple(world, draw_step(random), 0.5);
    EXPECT_EQ(world.report().strategy, before);
  }
}

// A worker that starts anew among others that do not: all take the default, averages are taken once.
TEST(DeviceStates, ThatDifferAreReset) {
  for (const Strategy strategy : kAll) {
    SCOPED_TRACE(name(strategy));
    const bool learns = strategy != Strategy::dense;
    SeededDraw random(53);
    const StateOptions options{.strategy = strategy, .average = true, .chunk_bytes = kChunkBytes};
    DeviceWorld world(kWorkers, options);
    for (unsigned i = 0; i < 2; ++i) expect_multiple(world, draw_step(random), 0.5);
    world.states()[1] = State(options);
    expect_multiple(world, draw_step(random), 0.5);
    for (unsigned w = 0; w < kWorkers; ++w) EXPECT_EQ(world.table().report(w).reset, learns);
    expect_multiple(world, draw_step(random), 0.5);
    EXPECT_FALSE(world.report().reset);
    EXPECT_EQ(world.states()[0].last().step, 4u);
    EXPECT_EQ(world.states()[1].last().step, 2u);
    EXPECT_EQ(world.states()[1].totals().resets, learns ? 1u : 0u);
  }
}

// A checkpoint of one run goes on in another.
TEST(DeviceStates, AreRestored) {
  for (const Strategy strategy : kAll) {
    SCOPED_TRACE(name(strategy));
    SeededDraw random(59);
    const StateOptions options{.strategy = strategy, .chunk_bytes = kChunkBytes};
    DeviceWorld saved(kWorkers, options);
    for (unsigned i = 0; i < 3; ++i) expect_sum(saved, draw_step(random));
    DeviceWorld restored(kWorkers, options);
    for (unsigned w = 0; w < kWorkers; ++w) restored.states()[w].restore(saved.states()[w].serialise());
    const KnownStep step = draw_step(random);
    expect_sum(saved, step);
    expect_sum(restored, step);
    EXPECT_FALSE(restored.report().reset);
    EXPECT_EQ(restored.report().step, 4u);
    EXPECT_EQ(restored.report().strategy, saved.report().strategy);
    EXPECT_EQ(restored.report().bytes_sent, saved.report().bytes_sent);
    EXPECT_EQ(restored.states()[0].serialise(), saved.states()[0].serialise());
  }
}

// Lends device memory and knows what it has not got back.
struct Lender {
  std::map<void*, std::size_t> lent;

  cuda::Allocator allocator() {
    return {.allocate =
                [this](std::size_t bytes) {
                  void* memory = nullptr;
                  require(cudaMalloc(&memory, bytes), "cudaMalloc");
                  lent[memory] = bytes;
                  return memory;
                },
            .release =
                [this](void* memory) {
                  EXPECT_EQ(lent.erase(memory), 1u) << "nobody has lent this";
                  EXPECT_EQ(cudaFree(memory), cudaSuccess);
                }};
  }
};

// Streams and devices end before the states that were used on them: those go on with what they learned, and give each
// device its memory back.
TEST(DeviceStates, OutliveTheirCommunicator) {
  for (const Strategy strategy : kAll) {
    SCOPED_TRACE(name(strategy));
    SeededDraw random(61);
    Lender first;
    Lender second;
    {
      DeviceWorld world(kWorkers, {.strategy = strategy, .chunk_bytes = kChunkBytes}, first.allocator());
      for (unsigned i = 0; i < 2; ++i) expect_sum(world, draw_step(random));
      const Strategy before = world.report().strategy;
      EXPECT_FALSE(first.lent.empty());
      world.meet_again(second.allocator());
      for (unsigned i = 0; i < 2; ++i) expect_sum(world, draw_step(random));
      EXPECT_TRUE(first.lent.empty()) << first.lent.size() << " arrays were not given back";
      EXPECT_FALSE(second.lent.empty());
      EXPECT_EQ(world.report().step, 4u);
      EXPECT_FALSE(world.report().reset);
      EXPECT_EQ(world.report().strategy, before);
      world.leave();
    }
    EXPECT_TRUE(second.lent.empty()) << second.lent.size() << " arrays were not given back";
  }
}

// The same with pools of the devices' own.
TEST(DeviceStates, OutliveTheirCommunicatorAndItsPool) {
  for (const Strategy strategy : kAll) {
    SCOPED_TRACE(name(strategy));
    SeededDraw random(67);
    DeviceWorld world(kWorkers, {.strategy = strategy, .chunk_bytes = kChunkBytes});
    for (unsigned i = 0; i < 3; ++i) {
      if (i != 0) world.meet_again();
      for (unsigned step = 0; step < 2; ++step) expect_sum(world, draw_step(random, i == 1 ? 0.3 : 0.02));
    }
    EXPECT_EQ(world.report().step, 6u);
    world.leave();
  }
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

}  // namespace
}  // namespace peel::testing
