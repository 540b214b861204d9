// Which backend runs: forced by PEEL_BACKEND, and proven by the engine that the verbs get.
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "codec/engine.h"
#include "peel/codec.h"
#include "refusal.h"

namespace peel::testing {
namespace {

// Sets PEEL_BACKEND for a scope, and puts back what was there.
class Forced {
 public:
  explicit Forced(const char* value) {
    if (const char* before = std::getenv("PEEL_BACKEND")) before_ = before;
    value != nullptr ? setenv("PEEL_BACKEND", value, 1) : unsetenv("PEEL_BACKEND");
  }
  ~Forced() { before_ ? setenv("PEEL_BACKEND", before_->c_str(), 1) : unsetenv("PEEL_BACKEND"); }
  Forced(const Forced&) = delete;
  Forced& operator=(const Forced&) = delete;

 private:
  std::optional<std::string> before_;
};

TEST(BackendChoice, ReferenceIsAlwaysThereAndFirst) {
  const std::vector<Backend> there = available_backends();
  ASSERT_FALSE(there.empty());
  EXPECT_EQ(there[0], Backend::reference);
#if PEEL_HAVE_CPU
  ASSERT_EQ(there.size(), 2u);
  EXPECT_EQ(there[1], Backend::cpu);
  EXPECT_FALSE(simd_target().empty());
#else
  EXPECT_EQ(there.size(), 1u);
  EXPECT_EQ(simd_target(), "");
#endif
}

TEST(BackendChoice, WithoutTheVariableItIsTheFastest) {
  for (const char* unforced : {static_cast<const char*>(nullptr), "", "auto"}) {
    const Forced forced(unforced);
    EXPECT_EQ(resolve(Backend::automatic), available_backends().back());
  }
}

TEST(BackendChoice, TheVariableForcesAndTheForcedOneRuns) {
  {
    const Forced forced("reference");
    EXPECT_EQ(resolve(Backend::automatic), Backend::reference);
    EXPECT_EQ(&detail::engine_of(Backend::automatic), &detail::reference_engine());
  }
#if PEEL_HAVE_CPU
  {
    const Forced forced("cpu");
    EXPECT_EQ(resolve(Backend::automatic), Backend::cpu);
    EXPECT_EQ(&detail::engine_of(Backend::automatic), &detail::cpu_engine());
    EXPECT_NE(&detail::engine_of(Backend::automatic), &detail::reference_engine());
  }
#else
  {
    const Forced forced("cpu");
    expect_refusal(ErrorCode::unsupported, "not in this build", [] { (void)resolve(Backend::automatic); });
  }
  expect_refusal(ErrorCode::unsupported, "not in this build", [] { (void)resolve(Backend::cpu); });
#endif
}

TEST(BackendChoice, ACallThatNamesItsBackendIsNotForced) {
  const Forced forced(available_backends().back() == Backend::cpu ? "cpu" : "reference");
  EXPECT_EQ(resolve(Backend::reference), Backend::reference);
  EXPECT_EQ(&detail::engine_of(Backend::reference), &detail::reference_engine());
}

TEST(BackendChoice, AnUnknownNameIsRefusedByEveryVerb) {
  const Forced forced("gpu");
  expect_refusal(ErrorCode::invalid_argument, "PEEL_BACKEND is \"gpu\"", [] { (void)resolve(Backend::automatic); });
  const Plan plan = Plan::make({.elements = 4});
  const std::vector<float> x(4);
  Message message(plan);
  expect_refusal(ErrorCode::invalid_argument, "PEEL_BACKEND", [&] { encode(plan, x, message); });
  EXPECT_NO_THROW(encode(plan, x, message, {.backend = Backend::reference}));
}

TEST(BackendChoice, NamesAreThoseOfTheVariable) {
  EXPECT_EQ(name(Backend::automatic), "auto");
  EXPECT_EQ(name(Backend::reference), "reference");
  EXPECT_EQ(name(Backend::cpu), "cpu");
  for (const Backend backend : available_backends()) {
    const Forced forced(std::string(name(backend)).c_str());
    EXPECT_EQ(resolve(Backend::automatic), backend);
  }
}

}  // namespace
}  // namespace peel::testing
