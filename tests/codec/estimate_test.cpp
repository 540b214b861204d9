// The estimate of items that do not peel is unbiased: over many seeds its mean error goes to zero. All values are
// positive, so that a lost sign or a systematic preference would show as a bias.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "peel/peel.h"
#include "plan/mapping.h"

namespace peel::testing {
namespace {

struct Regime {
  const char* name;
  std::uint64_t elements;
  std::uint64_t cells;  // of 4 bytes
  std::uint32_t grain;
};

// More items than cells: nothing peels. Near the threshold: most of it does, and estimates are of what is left.
const Regime kRegimes[] = {{"nothing peels", 300, 150, 1}, {"some peels", 300, 330, 1}, {"grain 4", 1200, 150, 4}};

struct Errors {
  double mean = 0;
  double standard_error = 0;
  std::uint64_t estimated = 0;
};

float value_at(std::uint64_t element) { return 1.0f + static_cast<float>(element % 50); }

Errors estimate_over_seeds(const Regime& regime, CellType cells, Backend backend, int seeds) {
  std::vector<float> x(regime.elements);
  for (std::uint64_t e = 0; e < x.size(); ++e) x[e] = value_at(e);
  Workspace workspace;
  const Execution execution{.backend = backend, .workspace = &workspace};
  Errors errors;
  double sum = 0, squares = 0;
  int used = 0;
  for (int seed = 0; seed < seeds; ++seed) {
    const Plan plan = Plan::make({.elements = regime.elements,
                                  .codec = Codec::sketch,
                                  .cells = cells,
                                  .grain = regime.grain,
                                  .index = Index::bitmap,
                                  .seed = detail::mix64(static_cast<std::uint64_t>(seed) + 1),
                                  .scale = cells == CellType::float32 ? 0 : 8,
                                  .payload_bytes = regime.cells * regime.grain * (cells == CellType::fixed64 ? 8 : 4)});
    Message message(plan);
    encode(plan, x, message, execution);
    std::vector<float> out(x.size());
    const Recovery r = decode(plan, message, out, {.estimate = true, .list_lost = true, .execution = execution});
    if (r.lost == 0) continue;
    double off = 0;
    std::uint64_t count = 0;
    for (const std::uint64_t item : r.lost_items) {
      for (std::uint64_t e = item * regime.grain; e < (item + 1) * regime.grain; ++e, ++count) off += out[e] - x[e];
    }
    errors.estimated += count;
    off /= static_cast<double>(count);
    sum += off;
    squares += off * off;
    ++used;
  }
  errors.mean = sum / used;
  errors.standard_error = std::sqrt((squares / used - errors.mean * errors.mean) / used);
  return errors;
}

TEST(Estimate, IsUnbiasedOverSeeds) {
  for (const Backend backend : available_backends()) {
    for (const CellType cells : {CellType::fixed32, CellType::fixed64, CellType::float32}) {
      for (const Regime& regime : kRegimes) {
        const Errors errors = estimate_over_seeds(regime, cells, backend, 500);
        SCOPED_TRACE(std::string(regime.name) + ", " + std::string(name(cells)) + ", " + std::string(name(backend)));
        EXPECT_GE(errors.estimated, 500u * 20) << "too few estimates to say anything";
        EXPECT_LE(std::fabs(errors.mean), 4 * errors.standard_error);
        EXPECT_LE(errors.standard_error, 1.5) << "a bias of a tenth of the values (26 on average) must be visible";
      }
    }
  }
}

TEST(Estimate, IsNotTheZeroThatNobodyAskedFor) {
  const Plan plan = Plan::make({.elements = 300, .codec = Codec::sketch, .scale = 8, .payload_bytes = 600});
  std::vector<float> x(300, 4.0f), out(300, 7.0f);
  Message message(plan);
  encode(plan, x, message);
  const Recovery r = decode(plan, message, out);
  EXPECT_EQ(r.lost, 300u);
  EXPECT_EQ(out, std::vector<float>(300, 7.0f)) << "without estimates old values stay";
  EXPECT_EQ(decode(plan, message, out, {.estimate = true}).lost, 300u) << "an estimate still counts as lost";
  int changed = 0;
  for (const float value : out) changed += value != 7.0f;
  EXPECT_GT(changed, 250);
}

// Lost items that nobody lists are counted all the same, and estimated alike.
TEST(Estimate, DoesNotDependOnAListOfWhatWasLost) {
  for (const Backend backend : available_backends()) {
    for (const Regime& regime : kRegimes) {
      const Plan plan = Plan::make({.elements = regime.elements,
                                    .codec = Codec::sketch,
                                    .grain = regime.grain,
                                    .index = Index::bitmap,
                                    .scale = 8,
                                    .payload_bytes = regime.cells * regime.grain * 4});
      std::vector<float> x(regime.elements), listed(regime.elements), counted(regime.elements);
      for (std::uint64_t e = 0; e < x.size(); ++e) x[e] = value_at(e);
      const Execution execution{.backend = backend};
      Message message(plan);
      encode(plan, x, message, execution);
      const Recovery a = decode(plan, message, listed, {.estimate = true, .list_lost = true, .execution = execution});
      const Recovery b = decode(plan, message, counted, {.estimate = true, .execution = execution});
      EXPECT_GT(a.lost, 0u) << regime.name;
      EXPECT_EQ(a.lost, a.lost_items.size()) << regime.name;
      EXPECT_EQ(b.lost, a.lost) << regime.name;
      EXPECT_EQ(b.recovered, a.recovered) << regime.name;
      EXPECT_TRUE(b.lost_items.empty()) << regime.name;
      EXPECT_EQ(counted, listed) << regime.name;
    }
  }
}

}  // namespace
}  // namespace peel::testing
