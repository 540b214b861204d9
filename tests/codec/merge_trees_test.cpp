// For any number of messages and any tree of merges, the sum is right within the stated bound or refused.
//
//   PEEL_TEST_SCALE=large build/release/peel_tests --gtest_filter='MergeTrees.*'
//
// draws 100,000 trees.
#include <gtest/gtest.h>

#include "codec/merge_tree.h"
#include "scale.h"

namespace peel::testing {
namespace {

TEST(MergeTrees, AreRightOrRefused) {
  const std::uint64_t trees = large_scale() ? 100'000 : scaled(5'000, 500);
  std::uint64_t refusals = 0;
  for (std::uint64_t seed = 0; seed < trees; ++seed) {
    SeededDraw draw(seed);
    MergeTree tree(draw);
    try {
      tree.check();
    } catch (const std::exception& failure) {
      FAIL() << "tree " << seed << ": " << failure.what();
    }
    refusals += tree.refusals();
  }
  EXPECT_GT(refusals, trees / 10) << "hardly a tree came to its limit";
}

}  // namespace
}  // namespace peel::testing
