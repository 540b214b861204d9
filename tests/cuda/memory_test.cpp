// What an exchange holds in device memory beside the array, by the formula of docs/design.md ("Memory").
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "cuda/device_world.h"
#include "peel/plan.h"

namespace peel::testing {
namespace {

constexpr std::uint64_t kElements = 1 << 18;
constexpr double kArray = kElements * 4.0;
constexpr double kBitmap = kArray / 32;

struct Seen {
  double held = 0;   // at most, in any step
  double own = 0;    // bytes of the values of one worker
  double all = 0;    // of the union
  double cells = 0;  // of a sketch
};

Seen sum(Strategy strategy, unsigned workers, double density) {
  SeededDraw random(workers);
  DeviceWorld world(workers, {.strategy = strategy, .grain = 1, .chunk_bytes = std::uint64_t{1} << 30});
  Seen seen;
  for (unsigned i = 0; i < 3; ++i) {
    const KnownStep step = KnownStep::draw({.elements = kElements, .density = density}, workers, random);
    world.reduce(dense_of(step, ElementType::float32), ElementType::float32);
    seen.held = std::max(seen.held, static_cast<double>(world.report().workspace_bytes));
    const std::uint64_t items = step.union_items(1).size();
    seen.all = std::max(seen.all, 4.0 * static_cast<double>(items));
    const Plan sketch = Plan::make({.elements = kElements,
                                    .expected_items = std::min(kElements, items + items / 4),
                                    .codec = Codec::sketch,
                                    .index = Index::bitmap});
    seen.cells = std::max(seen.cells, static_cast<double>(sketch.payload_bytes()));
  }
  seen.own = density * kArray;
  return seen;
}

double bound(Strategy strategy, const Seen& seen, double workers) {
  // There is room for an eighth of the array before anything is known, and for a tenth more than there was.
  const auto roomy = [](double bytes) { return std::min(kArray, std::max(1.1 * bytes, kArray / 8) + 8192); };
  const double own = roomy(seen.own);
  const double all = roomy(seen.all);
  const double cells = seen.cells;
  const double seldom = std::max(kArray / 8, 1.25 * own);
  const double kept = (strategy == Strategy::packed ? seen.all : seen.own) > 0.4 * kArray ? 0 : seldom;
  const double several[] = {workers * kBitmap, std::max(kArray / 4, workers * kBitmap / 8), 1048576.0};
  const double opened = std::min(several[0], std::max(several[1], several[2]));
  double sum = 0;
  switch (strategy) {
    case Strategy::packed:
      sum = 4 * kBitmap + kept + 3 * kBitmap + all;
      break;
    case Strategy::sketch:
      sum = 4 * kBitmap + kept + 3 * kBitmap + 4 * cells + 1048576;
      break;
    case Strategy::split:
      sum = (4 * kBitmap + kept + own) / workers + 4 * kBitmap + std::max(own, all / workers) +
            1.125 * std::max(seen.own, seen.all);
      break;
    case Strategy::gather:
      sum = 4 * kBitmap + kept + own + kBitmap + own + workers * 1.125 * (std::min(kBitmap, seen.own) + seen.own) +
            opened;
      break;
    default:
      break;
  }
  return 17.0 / 16 * sum + 9 * 65536;
}

TEST(DeviceMemoryFormula, HoldsForEveryStrategy) {
  for (const Strategy strategy : kStrategies) {
    for (const unsigned workers : {2u, 6u}) {
      for (const double density : {0.01, 0.3, 0.9}) {
        const Seen seen = sum(strategy, workers, density);
        const double most = bound(strategy, seen, workers);
        const std::string what = std::string(name(strategy)) + " of " + std::to_string(workers) + " workers at " +
                                 std::to_string(density) + ": " + std::to_string(seen.held / kArray) +
                                 " of the array, the formula says " + std::to_string(most / kArray);
        EXPECT_LE(seen.held, most) << what;
        EXPECT_GT(seen.held, strategy == Strategy::dense ? 0 : most / 2) << what;
      }
    }
  }
}

}  // namespace
}  // namespace peel::testing
