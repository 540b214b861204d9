// Threads share the work and must not show in the result: arrays long enough to be divided, at every number of threads,
// against one thread and against the reference.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "codec/checked_codec.h"
#include "codec/scenario.h"
#include "draw.h"
#include "scale.h"

namespace peel::testing {
namespace {

// More elements than any kernel gives to one thread, and a length that divides by nothing.
std::uint64_t long_array() { return scaled(400'009, 150'001); }

ExactGradient gradient(std::uint64_t elements, std::uint64_t one_of, std::uint64_t seed) {
  SeededDraw draw(seed);
  ExactGradient x;
  for (std::uint64_t e = 0; e < elements; ++e) {
    if (draw.below(one_of) == 0) x.set(e, static_cast<Units>(1 + draw.below(30)));
  }
  return x;
}

TEST(Threads, DoNotShowInTheResult) {
  for (const Codec codec : {Codec::packed, Codec::sketch}) {
    for (const Index index : {Index::bitmap, Index::bloom, Index::list}) {
      for (const std::uint32_t grain : {1u, 16u}) {
        const ExactGradient x = gradient(long_array(), grain == 1 ? 30 : 300, 81);
        for (const unsigned threads : {1u, 2u, 3u, 5u}) {
          CheckedCodec checked({.elements = long_array(),
                                .expected_items = x.units().size(),
                                .codec = codec,
                                .grain = grain,
                                .phase = grain / 2,
                                .index = index,
                                .scale = codec == Codec::sketch ? kUnitScale : 0},
                               {.threads = threads, .offset = 1});
          const auto message = checked.encode(x);
          EXPECT_EQ(checked.decode(message).lost, 0u) << checked.plan().describe();
        }
      }
    }
  }
}

TEST(Threads, DoNotShowInWhatIsLostOrEstimated) {
  const ExactGradient x = gradient(long_array(), 10, 82);
  for (const unsigned threads : {1u, 2u, 5u}) {
    CheckedCodec checked({.elements = long_array(),
                          .expected_items = x.units().size() * 85 / 100,
                          .codec = Codec::sketch,
                          .index = Index::bitmap,
                          .scale = kUnitScale},
                         {.threads = threads});
    const auto message = checked.encode(x);
    EXPECT_GT(checked.decode(message).lost, 0u);
    EXPECT_GT(checked.decode(message, /*estimate=*/true).lost, 0u);
  }
}

// Callers' own threads, each with its own workspace, sharing a plan and the inputs.
TEST(Threads, CallsFromManyThreadsDoNotMeet) {
  const Plan plan =
      Plan::make({.elements = 20'000, .expected_items = 1000, .codec = Codec::sketch, .scale = kUnitScale});
  const ExactGradient x = gradient(20'000, 20, 83);
  const Elements dense = x.dense(plan, 0);
  Message expected(plan);
  encode(plan, dense.view(), expected);
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t) {
    callers.emplace_back([&] {
      Workspace workspace;
      const Execution execution{.workspace = &workspace};
      for (int i = 0; i < 20; ++i) {
        Message mine(plan);
        encode(plan, dense.view(), mine, execution);
        Elements out(plan.type(), plan.elements(), 0, Elements::kOld);
        const Recovery r = decode(plan, mine, out.target(), {.execution = execution});
        wrong += r.lost != 0 || std::memcmp(out.data(), dense.data(), plan.dense_bytes()) != 0 ||
                 std::memcmp(mine.payload.data(), expected.payload.data(), expected.payload.size()) != 0;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace peel::testing
