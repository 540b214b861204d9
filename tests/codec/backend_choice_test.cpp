// Which backend runs: forced by PEEL_BACKEND, and proven by the engine that the verbs get.
#include <gtest/gtest.h>

#include "codec/engine.h"
#include "codec/forced_backend.h"
#include "peel/codec.h"
#include "refusal.h"

namespace peel::testing {
namespace {

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
    const ForcedBackend forced(unforced);
    EXPECT_EQ(resolve(Backend::automatic), available_backends().back());
  }
}

TEST(BackendChoice, TheVariableForcesAndTheForcedOneRuns) {
  {
    const ForcedBackend forced("reference");
    EXPECT_EQ(resolve(Backend::automatic), Backend::reference);
    EXPECT_EQ(&detail::engine_of(Backend::automatic), &detail::reference_engine());
  }
#if PEEL_HAVE_CPU
  {
    const ForcedBackend forced("cpu");
    EXPECT_EQ(resolve(Backend::automatic), Backend::cpu);
    EXPECT_EQ(&detail::engine_of(Backend::automatic), &detail::cpu_engine());
    EXPECT_NE(&detail::engine_of(Backend::automatic), &detail::reference_engine());
  }
#else
  {
    const ForcedBackend forced("cpu");
    expect_refusal(ErrorCode::unsupported, "not in this build", [] { (void)resolve(Backend::automatic); });
  }
  expect_refusal(ErrorCode::unsupported, "not in this build", [] { (void)resolve(Backend::cpu); });
#endif
}

TEST(BackendChoice, ACallThatNamesItsBackendIsNotForced) {
  const ForcedBackend forced(available_backends().back() == Backend::cpu ? "cpu" : "reference");
  EXPECT_EQ(resolve(Backend::reference), Backend::reference);
  EXPECT_EQ(&detail::engine_of(Backend::reference), &detail::reference_engine());
}

TEST(BackendChoice, AnUnknownNameIsRefusedByEveryVerb) {
  const ForcedBackend forced("gpu");
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
    const ForcedBackend forced(std::string(name(backend)).c_str());
    EXPECT_EQ(resolve(Backend::automatic), backend);
  }
}

}  // namespace
}  // namespace peel::testing
