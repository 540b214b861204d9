// How much memory an all-reduce holds beside the array.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "allreduce/layout.h"
#include "allreduce/round_table.h"
#include "allreduce/workers.h"
#include "draw.h"

namespace peel::testing {
namespace {

// A smaller array than users have, cut into as many chunks as one of 2^23 floats: the same part of it is under way.
double workspace_of(Strategy strategy, unsigned permille, unsigned workers) {
  constexpr std::uint64_t elements = 1 << 21;  // below that, what every chunk holds whatever its length shows
  const std::size_t chunks = detail::cut_dense({}, 1 << 23, ElementType::float32).chunks.size();
  const std::uint64_t bytes = elements * sizeof(float);
  SeededDraw random(3);
  std::vector<std::vector<float>> arrays(workers, std::vector<float>(elements));
  for (auto& x : arrays) {
    for (float& value : x) value = random.below(1000) < permille ? 1.0f : 0.0f;
  }
  std::vector<State> states;
  std::vector<std::shared_ptr<ScratchPool>> pools;
  for (unsigned w = 0; w < workers; ++w) {
    states.emplace_back(StateOptions{.strategy = strategy, .chunk_bytes = bytes / chunks});
    pools.push_back(std::make_shared<ScratchPool>());
  }
  std::uint64_t most = 0;
  for (std::uint64_t step = 0; step < 2; ++step) {
    std::vector<std::vector<float>> sums = arrays;
    RoundTable table(step);
    for (unsigned w = 0; w < workers; ++w) {
      const World world{.rank = w, .size = workers, .link = kSlowLink, .scratch = pools[w]};
      table.join(std::make_unique<Exchange>(states[w], world, sums[w]));
    }
    table.run();
    for (unsigned w = 0; w < workers; ++w) {
      most = std::max({most, table.report(w).workspace_bytes, pools[w]->memory_bytes()});
    }
  }
  return static_cast<double>(most) / static_cast<double>(bytes);
}

// As a part of the array: half of it is the promise. Some strategies need more where nearly everything is non-zero;
// what they need is held here, so that it does not grow.
struct Room {
  Strategy strategy;
  double at_1_percent, at_30_percent, at_90_percent;
};
void PrintTo(const Room& room, std::ostream* out) { *out << name(room.strategy); }

class Workspace : public ::testing::TestWithParam<Room> {};
INSTANTIATE_TEST_SUITE_P(Strategies, Workspace,
                         ::testing::Values(Room{Strategy::automatic, 0.5, 0.5, 0.6},
                                           Room{Strategy::dense, 0.5, 0.5, 0.5}, Room{Strategy::packed, 0.5, 0.5, 0.5},
                                           Room{Strategy::sketch, 0.5, 0.6, 1.0}, Room{Strategy::split, 0.5, 0.5, 0.6},
                                           Room{Strategy::gather, 0.5, 0.5, 0.55}),
                         [](const auto& tested) { return std::string(name(tested.param.strategy)); });

TEST_P(Workspace, IsAPartOfTheArray) {
  const Room& room = GetParam();
  EXPECT_LE(workspace_of(room.strategy, 10, 2), room.at_1_percent);
  EXPECT_LE(workspace_of(room.strategy, 300, 2), room.at_30_percent);
  EXPECT_LE(workspace_of(room.strategy, 900, 2), room.at_90_percent);
}

TEST(WorkspaceOfFourWorkers, IsAtMostHalfOfTheArray) {
  EXPECT_LE(workspace_of(Strategy::automatic, 10, 4), 0.5);
  EXPECT_LE(workspace_of(Strategy::split, 300, 4), 0.5);
}

}  // namespace
}  // namespace peel::testing
