// Memory that calls reuse: a workspace, a support, a message or a sparse gradient that has served another plan must not
// show in the next result.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "codec/checked_codec.h"
#include "codec/scenario.h"
#include "draw.h"
#include "refusal.h"
#include "scale.h"

namespace peel::testing {
namespace {

bool same(const Message& a, const Message& b) {
  const auto equal = [](const void* x, const void* y, std::size_t bytes) {
    return bytes == 0 || std::memcmp(x, y, bytes) == 0;
  };
  return a.index.size() == b.index.size() && a.payload.size() == b.payload.size() &&
         equal(a.index.data(), b.index.data(), a.index.size() * 8) &&
         equal(a.payload.data(), b.payload.data(), a.payload.size());
}

struct Reused {
  Workspace workspace;
  Support support;
  Message message;
  Sparse sparse;
};

// Everything reused, against everything fresh.
void expect_fresh_result(const Scenario& s, Backend backend, Reused& old) {
  const Plan plan = Plan::make(s.options);
  const Elements x = s.workers[0].dense(plan, 0);
  const Sparse list = s.workers[0].sparse(plan, std::byte{0xFF});
  const Execution reusing{.backend = backend, .threads = s.how.threads, .workspace = &old.workspace};
  Message fresh;
  encode(plan, x.view(), fresh, {.backend = backend});

  encode(plan, x.view(), old.message, reusing);
  EXPECT_TRUE(same(old.message, fresh)) << "dense\n" << plan.describe();
  encode(plan, ConstSparse(list), old.message, reusing);
  EXPECT_TRUE(same(old.message, fresh)) << "sparse\n" << plan.describe();
  if (plan.codec() == Codec::packed) {
    for (const bool dense : {true, false}) {
      dense ? encode_index(plan, x.view(), old.support, old.message, reusing)
            : encode_index(plan, ConstSparse(list), old.support, old.message, reusing);
      encode_values(plan, old.support, old.message, reusing);
      EXPECT_TRUE(same(old.message, fresh)) << "two rounds\n" << plan.describe();
    }
  }

  Sparse fresh_sparse;
  const Recovery a = decode(plan, fresh, fresh_sparse, {.list_lost = true, .execution = {.backend = backend}});
  const Recovery b = decode(plan, fresh, old.sparse, {.list_lost = true, .execution = reusing});
  EXPECT_EQ(fresh_sparse.items, old.sparse.items) << plan.describe();
  EXPECT_EQ(fresh_sparse.values, old.sparse.values) << plan.describe();
  EXPECT_EQ(a.lost_items, b.lost_items);
  Elements one(plan.type(), plan.elements(), 0, Elements::kOld), other = one;
  decode(plan, fresh, one.target(), {.execution = {.backend = backend}});
  decode(plan, fresh, other.target(), {.execution = reusing});
  EXPECT_EQ(std::memcmp(one.data(), other.data(), plan.dense_bytes()), 0) << plan.describe();
}

TEST(Reuse, NothingOfTheLastPlanShows) {
  for (const Backend backend : available_backends()) {
    Reused old;
    SeededDraw draw(21);
    for (std::uint64_t i = 0; i < scaled(600, 100); ++i) {
      const Scenario s = draw_scenario(draw, {.rarely_elements = 100'000, .workers = 1});
      expect_fresh_result(s, backend, old);
      ASSERT_FALSE(::testing::Test::HasFailure()) << "after " << i << " other plans, on " << name(backend);
    }
  }
}

TEST(Reuse, AFailedCallLeavesTheWorkspaceUsable) {
  const Plan plan = Plan::make({.elements = 1000, .expected_items = 100, .codec = Codec::sketch, .scale = 8});
  std::vector<float> bad(1000, 1.0f), good(1000), out(1000);
  bad[500] = std::numeric_limits<float>::quiet_NaN();
  for (int i = 0; i < 1000; i += 10) good[i] = 2.0f;
  for (const Backend backend : available_backends()) {
    Workspace workspace;
    const Execution execution{.backend = backend, .workspace = &workspace};
    Message message(plan);
    EXPECT_THROW(encode(plan, bad, message, execution), Error);
    encode(plan, good, message, execution);
    EXPECT_EQ(decode(plan, message, out, {.execution = execution}).lost, 0u);
    EXPECT_EQ(out, good);
  }
}

// ---- a support belongs to one plan and one second round

class SupportUse : public ::testing::TestWithParam<Backend> {
 protected:
  const PlanOptions options_{.elements = 640, .expected_items = 64};
  const Plan plan_ = Plan::make(options_);
  std::vector<float> x_ = [] {
    std::vector<float> x(640);
    for (std::size_t i = 0; i < x.size(); i += 10) x[i] = 1.0f;
    return x;
  }();
  const Execution execution_{.backend = GetParam()};
};

TEST_P(SupportUse, TheSecondRoundNeedsTheFirst) {
  Support support;
  Message message(plan_);
  expect_refusal(ErrorCode::invalid_argument, "encode_index",
                 [&] { encode_values(plan_, support, message, execution_); });
}

TEST_P(SupportUse, ASupportIsUsedUpByItsSecondRound) {
  Support support;
  Message message(plan_);
  encode_index(plan_, x_, support, message, execution_);
  EXPECT_EQ(support.items(), 64u);
  encode_values(plan_, support, message, execution_);
  Message other = message;
  expect_refusal(ErrorCode::invalid_argument, "encode_index",
                 [&] { encode_values(plan_, support, other, execution_); });
  // And is as good as new for another first round.
  encode_index(plan_, x_, support, other, execution_);
  encode_values(plan_, support, other, execution_);
  EXPECT_TRUE(same(message, other));
}

TEST_P(SupportUse, ASupportOfAnotherPlanIsRefused) {
  PlanOptions wider = options_, coarser = options_;
  wider.type = ElementType::float64;
  coarser.grain = 2;
  coarser.elements = 1280;  // the same number of items
  for (const PlanOptions& options : {wider, coarser}) {
    Support support;
    Message message(plan_), other(Plan::make(options));
    encode_index(plan_, x_, support, message, execution_);
    expect_refusal(ErrorCode::invalid_argument, "encode_index",
                   [&] { encode_values(Plan::make(options), support, other, execution_); });
  }
}

TEST_P(SupportUse, AnIndexWithoutOnesOwnItemsIsRefused) {
  Support support;
  Message message(plan_);
  encode_index(plan_, x_, support, message, execution_);
  message.index[0] &= ~std::uint64_t{1};
  expect_refusal(ErrorCode::corrupt_message, "lacks an item",
                 [&] { encode_values(plan_, support, message, execution_); });
}

TEST_P(SupportUse, ASketchHasNoRounds) {
  const Plan sketch = Plan::make({.elements = 640, .expected_items = 64, .codec = Codec::sketch});
  Support support;
  Message message(sketch);
  expect_refusal(ErrorCode::invalid_argument, "two rounds",
                 [&] { encode_index(sketch, x_, support, message, execution_); });
  expect_refusal(ErrorCode::invalid_argument, "two rounds",
                 [&] { encode_values(sketch, support, message, execution_); });
}

TEST_P(SupportUse, SupportsMoveWithTheirItems) {
  Support support;
  Message message(plan_), expected(plan_);
  encode(plan_, x_, expected, execution_);
  encode_index(plan_, x_, support, message, execution_);
  Support moved = std::move(support);
  EXPECT_EQ(moved.items(), 64u);
  encode_values(plan_, moved, message, execution_);
  EXPECT_TRUE(same(message, expected));
}

INSTANTIATE_TEST_SUITE_P(Backends, SupportUse, ::testing::ValuesIn(available_backends()),
                         [](const auto& backend) { return std::string(name(backend.param)); });

}  // namespace
}  // namespace peel::testing
