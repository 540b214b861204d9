// A property: a body that draws its own inputs and must hold for all of them. rapidcheck draws and shrinks where it is
// installed; else a seeded loop runs the same body. Seeds are fixed either way, so a run is the same everywhere.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <sstream>
#include <string>
#include <unordered_map>

#include "draw.h"

#if PEEL_HAVE_RAPIDCHECK
#include <rapidcheck.h>
#endif

namespace peel::testing {

using Body = std::function<void(Draw&)>;

#if PEEL_HAVE_RAPIDCHECK

class ShrinkingDraw final : public Draw {
 public:
  std::uint64_t below(std::uint64_t bound) override {
    // The nominal size: the whole range from the first case on.
    return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::uint64_t>(0, bound));
  }
};

// rapidcheck's own listener reports a seed from the environment, which is not the one in use.
class SilentListener final : public rc::detail::TestListener {
 public:
  void onTestCaseFinished(const rc::detail::CaseDescription&) override {}
  void onShrinkTried(const rc::detail::CaseDescription&, bool) override {}
  void onTestFinished(const rc::detail::TestMetadata&, const rc::detail::TestResult&) override {}
};

inline void check_property(std::uint64_t seed, int cases, const Body& body) {
  rc::detail::TestParams params;
  params.seed = seed;
  params.maxSuccess = cases;
  const auto property = [&body] {
    ShrinkingDraw draw;
    body(draw);
  };
  SilentListener silent;
  const std::unordered_map<std::string, rc::detail::Reproduce> nothing_to_reproduce;
  const auto result =
      rc::detail::checkTestable(property, rc::detail::TestMetadata{}, params, silent, nothing_to_reproduce);
  if (result.is<rc::detail::SuccessResult>()) return;
  std::ostringstream message;
  rc::detail::printResultMessage(result, message);
  ADD_FAILURE() << message.str();
}

#else

inline void check_property(std::uint64_t seed, int cases, const Body& body) {
  for (int i = 0; i < cases; ++i) {
    SeededDraw draw(seed * 1'000'003 + static_cast<std::uint64_t>(i));
    try {
      body(draw);
    } catch (const std::exception& failure) {
      ADD_FAILURE() << "case " << i << " of seed " << seed << ": " << failure.what();
      return;
    }
  }
}

#endif

}  // namespace peel::testing
