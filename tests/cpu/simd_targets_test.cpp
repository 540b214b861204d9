// The cpu backend is compiled for many vector widths and picks one at run time. Here every one that this machine can
// run is picked in turn, and must agree with the reference.
#include <gtest/gtest.h>

#if PEEL_HAVE_CPU

#include <hwy/targets.h>

#include <set>
#include <string>

#include "codec/checked_codec.h"
#include "codec/scenario.h"
#include "draw.h"
#include "scale.h"

namespace peel::testing {
namespace {

// Restricts Highway to one target for a scope.
class OnlyTarget {
 public:
  explicit OnlyTarget(std::int64_t target) { choose(target); }
  ~OnlyTarget() { choose(0); }
  OnlyTarget(const OnlyTarget&) = delete;
  OnlyTarget& operator=(const OnlyTarget&) = delete;

 private:
  static void choose(std::int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

void run_scenarios(std::uint64_t seed, std::uint64_t count) {
  SeededDraw draw(seed);
  for (std::uint64_t i = 0; i < count; ++i) {
    const Scenario s = draw_scenario(draw, {.rarely_elements = 30'000, .workers = 3});
    CheckedCodec codec(s.options, s.how);
    auto sum = codec.encode(s.workers[0]);
    for (std::size_t w = 1; w < s.workers.size(); ++w) codec.merge(sum, codec.encode(s.workers[w]));
    codec.decode(sum, i % 3 == 0);
  }
}

TEST(SimdTargets, AllAgreeWithTheReference) {
  const std::string best(simd_target());
  std::set<std::string> ran;
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const OnlyTarget only(target);
    const std::string name(simd_target());
    if (name != hwy::TargetName(target)) continue;  // not compiled into the library
    SCOPED_TRACE(name);
    EXPECT_NO_THROW(run_scenarios(71, scaled(250, 30)));
    ran.insert(name);
  }
  EXPECT_TRUE(ran.contains(best)) << best;
  EXPECT_EQ(simd_target(), best) << "the choice is back to what it was";
}

}  // namespace
}  // namespace peel::testing

#endif
