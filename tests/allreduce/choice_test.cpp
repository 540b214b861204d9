// Which strategy auto takes: a cost model, held against cases whose answer is plain.
#include "allreduce/choice.h"

#include <gtest/gtest.h>

#include <vector>

namespace peel::detail {
namespace {

constexpr std::uint64_t kElements = 1 << 20;
constexpr LinkFacts kGigabit{.latency_s = 50e-6, .bytes_per_second = 125e6, .copy_bytes_per_second = 8e9};

World world_of(unsigned workers) { return {.rank = 0, .size = workers, .link = kGigabit}; }

ChunkHistory remembered(double union_density, double own_density, std::uint32_t grain = 1) {
  ChunkHistory history;
  history.steps = 5;
  history.grain = grain;
  history.items = static_cast<std::uint64_t>(union_density * kElements / grain);
  history.own_items = static_cast<std::uint64_t>(own_density * kElements / grain);
  history.has_magnitude = 1;
  return history;
}

Strategy chosen(const World& world, const ChunkHistory& history, ChunkShape shape = {.elements = kElements}) {
  return choose({}, world, shape, history).strategy;
}

TEST(Choice, DenseWhenEverythingIsDense) {
  for (const unsigned workers : {2u, 4u, 16u, 64u}) {
    EXPECT_EQ(chosen(world_of(workers), remembered(1.0, 1.0)), Strategy::dense) << workers;
    EXPECT_EQ(chosen(world_of(workers), remembered(0.98, 0.95)), Strategy::dense) << workers;
  }
}

TEST(Choice, NeverDenseWhenMuchIsZero) {
  for (const unsigned workers : {2u, 4u, 16u, 64u}) {
    for (const double density : {0.0001, 0.01, 0.1, 0.3}) {
      EXPECT_NE(chosen(world_of(workers), remembered(density, density / workers)), Strategy::dense) << workers;
      EXPECT_NE(chosen(world_of(workers), remembered(density, density)), Strategy::dense) << workers;
    }
  }
}

// u > (W-1) n: everybody's items are fewer than the union comes to.
TEST(Choice, GatherWhileTheUnionIsLargerThanAllItems) {
  EXPECT_EQ(chosen(world_of(2), remembered(0.02, 0.01)), Strategy::gather);
  EXPECT_EQ(chosen(world_of(3), remembered(0.03, 0.01)), Strategy::gather);
  EXPECT_EQ(chosen(world_of(16), remembered(0.01, 0.01)), Strategy::split);
  EXPECT_EQ(chosen(world_of(64), remembered(0.05, 0.01)), Strategy::split);
  // With more and more workers of the same gradients it changes once, and for good.
  bool split = false;
  for (unsigned workers = 2; workers <= 64; ++workers) {
    const Strategy strategy = chosen(world_of(workers), remembered(0.03, 0.01));
    EXPECT_TRUE(strategy == Strategy::split || (strategy == Strategy::gather && !split)) << workers;
    split |= strategy == Strategy::split;
  }
  EXPECT_TRUE(split);
}

// Every message is read as a bitmap of the whole array there, in memory of its own and by kernels of its own: with
// hundreds of workers, or short arrays, that outweighs what one round saves, though nobody's items are anybody else's.
TEST(Choice, NoGatherOfShortMessagesOnADevice) {
  constexpr LinkFacts kFabric{.latency_s = 30e-6, .bytes_per_second = 25e9, .copy_bytes_per_second = 1e12};
  constexpr double kOwn = 1e-6;
  for (const unsigned workers : {2u, 4u, 256u, 1024u}) {
    const World world{.rank = 0, .size = workers, .link = kFabric};
    const ChunkHistory history = remembered(kOwn * workers, kOwn);
    EXPECT_EQ(chosen(world, history), Strategy::gather) << workers << " on the host";
    const Strategy on_device = chosen(world, history, {.elements = kElements, .memory = Memory::device});
    EXPECT_NE(on_device, Strategy::gather) << workers;
  }
}

// A message is read by a handful of kernels, however short it is: where a link is faster than those, one sum of all is
// better than everybody's messages.
TEST(Choice, NoGatherOnADeviceWhoseLinkIsFasterThanReading) {
  constexpr std::uint64_t kChunk = 1 << 24;
  const auto choice = [&](double bytes_per_second, Memory memory) {
    const World world{.rank = 0,
                      .size = 4,
                      .link = {.latency_s = 5e-6, .bytes_per_second = bytes_per_second, .copy_bytes_per_second = 2e12}};
    ChunkHistory learned = remembered(0.01, 0.0025);
    learned.items *= kChunk / kElements;
    learned.own_items *= kChunk / kElements;
    return chosen(world, learned, {.elements = kChunk, .memory = memory});
  };
  EXPECT_EQ(choice(50e9, Memory::host), Strategy::gather) << "where reading costs no kernels";
  EXPECT_EQ(choice(3e9, Memory::device), Strategy::gather);
  EXPECT_EQ(choice(50e9, Memory::device), Strategy::packed);
  EXPECT_EQ(choice(450e9, Memory::device), Strategy::packed);
  EXPECT_EQ(choice(5000e9, Memory::device), Strategy::dense);
}

// Its sums are rounded to a shared scale: for those who ask for it, or who have nothing better.
TEST(Choice, NeverASketchWhereBuffersMove) {
  for (const unsigned workers : {2u, 4u, 64u}) {
    for (const double density : {0.00001, 0.001, 0.1, 0.5, 1.0}) {
      for (const double own : {density, density / workers}) {
        EXPECT_NE(chosen(world_of(workers), remembered(density, own)), Strategy::sketch);
      }
    }
  }
}

TEST(Choice, OnlyWhatTheTransportOffers) {
  World sums = world_of(4);
  sums.moves_buffers = false;
  World integers = sums;
  integers.sums = SumTypes::integers();
  for (const double density : {0.0001, 0.01, 0.3, 1.0}) {
    for (const ChunkHistory& history : {remembered(density, density), ChunkHistory{}}) {
      const Strategy of_sums = chosen(sums, history);
      EXPECT_TRUE(of_sums == Strategy::packed || of_sums == Strategy::sketch || of_sums == Strategy::dense);
      const Strategy of_integers = chosen(integers, history);
      EXPECT_TRUE(of_integers == Strategy::packed || of_integers == Strategy::sketch) << name(of_integers);
      const ChunkShape whole{.elements = kElements, .type = ElementType::int32};
      EXPECT_NE(chosen(integers, history, whole), Strategy::split);
    }
  }
  EXPECT_EQ(chosen(integers, remembered(1, 1), {.elements = kElements, .type = ElementType::int32}), Strategy::dense);
}

TEST(Choice, ASparseGradientIsNeverDense) {
  for (const double density : {0.01, 1.0}) {
    EXPECT_NE(chosen(world_of(4), remembered(density, density), {.elements = kElements, .sparse = true}),
              Strategy::dense);
  }
}

TEST(Choice, WithoutKnowledgeItSendsWhatThereIs) {
  EXPECT_EQ(chosen(world_of(4), {}), Strategy::split);
  World sums = world_of(4);
  sums.moves_buffers = false;
  const Choice choice = choose({}, sums, {.elements = kElements}, {});
  EXPECT_EQ(choice.strategy, Strategy::packed);
  EXPECT_EQ(choice.plan.index(), Index::bitmap) << "a filter cannot be sized yet";
}

TEST(Choice, WhatIsAskedForIsTaken) {
  for (const Strategy strategy :
       {Strategy::dense, Strategy::packed, Strategy::sketch, Strategy::split, Strategy::gather}) {
    for (const ChunkHistory& history : {remembered(1, 1), remembered(0.001, 0.001), ChunkHistory{}}) {
      EXPECT_EQ(choose({.strategy = strategy}, world_of(4), {.elements = kElements}, history).strategy, strategy);
    }
  }
  EXPECT_EQ(chosen(world_of(4), remembered(1, 1), {.elements = kElements, .estimate_bytes = 1000}), Strategy::sketch);
}

// A plan has room for what may come: it follows the last union and how much unions change.
TEST(Choice, PlansFollowTheLastUnionWithHeadroom) {
  ChunkHistory history = remembered(0.01, 0.01);
  const StateOptions sketch{.strategy = Strategy::sketch};
  const std::uint64_t steady = choose(sketch, world_of(4), {.elements = kElements}, history).plan.expected_items();
  EXPECT_GT(steady, history.items);
  EXPECT_LT(steady, history.items + history.items / 10);
  history.learn(history.items * 5 / 4, history.own_items);
  const std::uint64_t moved = choose(sketch, world_of(4), {.elements = kElements}, history).plan.expected_items();
  EXPECT_GE(moved, history.items * 5 / 4) << "it changed by a quarter, and may again";
  for (int step = 0; step < 60; ++step) history.learn(history.items, history.own_items);
  const std::uint64_t calm = choose(sketch, world_of(4), {.elements = kElements}, history).plan.expected_items();
  EXPECT_LT(calm, history.items + history.items / 10) << "what was long ago fades";
}

// The faster the link, the less is gained by coding.
TEST(Choice, AFastLinkPrefersDense) {
  World fast = world_of(4);
  fast.link.bytes_per_second = 100e9;
  fast.link.latency_s = 1e-6;
  EXPECT_EQ(chosen(fast, remembered(0.5, 0.4)), Strategy::dense);
  EXPECT_NE(chosen(world_of(4), remembered(0.5, 0.4)), Strategy::dense);
}

TEST(ExpectedSeconds, GrowWithTheItems) {
  for (const Strategy strategy : {Strategy::packed, Strategy::sketch, Strategy::split, Strategy::gather}) {
    double last = 0;
    for (const double density : {0.0001, 0.001, 0.01, 0.1, 0.5}) {
      const ChunkHistory history = remembered(density, density);
      const Plan plan = plan_for(strategy, {}, world_of(4), {.elements = kElements}, history);
      const double seconds = expected_seconds(strategy, plan, world_of(4), {.elements = kElements}, history);
      EXPECT_GT(seconds, last) << name(strategy);
      last = seconds;
    }
  }
}

}  // namespace
}  // namespace peel::detail
