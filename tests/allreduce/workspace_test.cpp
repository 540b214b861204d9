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

// The formula of docs/design.md ("Memory"), for float32 with grain 1: bytes of one chunk by role. A buffer is kept by
// its role, so strategies that take turns in one pool hold the largest of each.
struct Roles {
  double support = 0;   // own items and their values
  double message = 0;   // index and payload
  double verbs = 0;     // what the codec works in
  double shares = 0;    // positions of items, by worker
  double messages = 0;  // of items, that are sent
  double received = 0;  // from other workers
  double sum = 0;       // the union and its values

  [[nodiscard]] double bytes() const { return support + message + verbs + shares + messages + received + sum; }
  void widen(const Roles& other) {
    for (double Roles::*role : {&Roles::support, &Roles::message, &Roles::verbs, &Roles::shares, &Roles::messages,
                                &Roles::received, &Roles::sum}) {
      this->*role = std::max(this->*role, other.*role);
    }
  }
};

struct ChunkSizes {
  double bitmap, own, all;  // bytes: a bit for each position, the values of one worker, the values of the union
};

Roles roles_of(Strategy strategy, const ChunkSizes& c, double workers) {
  const double others = workers - 1;
  switch (strategy) {
    case Strategy::packed:
      return {.support = c.bitmap + c.own, .message = c.bitmap + c.all, .verbs = c.bitmap + c.all};
    case Strategy::sketch:
      return {.support = c.bitmap + c.own, .message = c.bitmap + 2 * c.all, .verbs = c.bitmap + 5 * c.all};
    case Strategy::split:
      return {.support = c.bitmap + c.own,
              .shares = 3 * c.bitmap,
              .messages = 3 * c.bitmap + c.own + c.all / workers,
              .received = 2 * (c.bitmap + std::max(c.own, c.all)) * others / workers,
              .sum = c.bitmap + c.all};
    case Strategy::gather:
      return {.support = c.bitmap + c.own,
              .shares = 2 * c.bitmap * workers,
              .messages = 2 * c.bitmap + c.own,
              .received = (c.bitmap + c.own) * others,
              .sum = c.bitmap + c.all};
    default:
      return {};
  }
}

class Mixture {
 public:
  static constexpr unsigned kWorkers = 3;
  static constexpr std::uint64_t kElements = 1 << 18;  // of a chunk; there are four

  explicit Mixture(unsigned permille) {
    SeededDraw random(9);
    arrays_.assign(kWorkers, std::vector<float>(4 * kElements));
    double own = 0;
    double all = 0;
    for (std::uint64_t i = 0; i < 4 * kElements; ++i) {
      bool any = false;
      for (auto& x : arrays_) {
        if (random.below(1000) >= permille) continue;
        x[i] = 1.0f;
        own += 1;
        any = true;
      }
      all += any ? 1 : 0;
    }
    sizes_ = {kElements / 8.0, own / kWorkers, all};  // of a quarter of the elements, 4 bytes each
  }

  // What worker 0 keeps once it has summed by all of these in turn.
  [[nodiscard]] double kept(const std::vector<Strategy>& strategies) const {
    std::vector<std::shared_ptr<ScratchPool>> pools;
    for (unsigned w = 0; w < kWorkers; ++w) pools.push_back(std::make_shared<ScratchPool>());
    for (const Strategy strategy : strategies) {
      std::vector<State> states;
      for (unsigned w = 0; w < kWorkers; ++w) {
        states.emplace_back(StateOptions{.strategy = strategy, .grain = 1, .chunk_bytes = kElements * sizeof(float)});
      }
      for (std::uint64_t step = 0; step < 2; ++step) {
        std::vector<std::vector<float>> sums = arrays_;
        RoundTable table(step);
        for (unsigned w = 0; w < kWorkers; ++w) {
          const World world{.rank = w, .size = kWorkers, .link = kSlowLink, .scratch = pools[w]};
          table.join(std::make_unique<Exchange>(states[w], world, sums[w]));
        }
        table.run();
      }
    }
    return static_cast<double>(pools[0]->memory_bytes());
  }

  // Three chunks are under way; a buffer that grew has room for half as much again; 1/8 for what is not spread evenly;
  // and 1 MiB for what does not follow from these sizes.
  [[nodiscard]] double bound(const std::vector<Strategy>& strategies) const {
    Roles roles;
    for (const Strategy strategy : strategies) roles.widen(roles_of(strategy, sizes_, kWorkers));
    return 3 * 1.5 * 1.125 * roles.bytes() + (1 << 20);
  }

 private:
  std::vector<std::vector<float>> arrays_;
  ChunkSizes sizes_ = {};
};

TEST(MemoryFormula, HoldsForStrategiesAloneAndMixed) {
  const std::vector<Strategy> all = {Strategy::dense, Strategy::packed, Strategy::sketch, Strategy::split,
                                     Strategy::gather};
  for (const unsigned permille : {10u, 300u, 900u}) {
    const Mixture mixture(permille);
    double largest = 0;
    for (const Strategy one : all) {
      const double kept = mixture.kept({one});
      EXPECT_LE(kept, mixture.bound({one})) << name(one) << ", " << permille << " permille";
      largest = std::max(largest, kept);
    }
    const double kept = mixture.kept(all);
    EXPECT_LE(kept, mixture.bound(all)) << permille << " permille";
    EXPECT_GT(kept, mixture.bound(all) / 4) << "the formula says much more than there is";
    EXPECT_GT(kept, largest) << "buffers are kept by role";
  }
}

}  // namespace
}  // namespace peel::testing
