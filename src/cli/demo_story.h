// What the demonstration says about its results, in the terminal and on its page alike: a headline, what was measured
// on what, what the words mean, and what to do next.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/json.h"

namespace peel::cli {

// One strategy on one kind of gradient, as bench allreduce reports it.
struct DemoResult {
  std::string pattern;
  double density = 0;
  std::string strategy;
  std::string chosen;
  double seconds = 0;
  double baseline_seconds = 0;
  double bytes = 0;
  double dense_bytes = 0;
  double link_bytes = 0;      // of `bytes`, what crosses the worker's link: through a switch, every message goes once
  double baseline_bytes = 0;  // at least; what rows are compared with may send anything
  double rate_bits = 0;       // of the link; 0: it has no limit
  std::string exactness;
  double error_bound = 0;
  bool exact_values = false;  // whose sums are exact in any order, so every strategy must be equal
  std::uint64_t compared = 0;
  std::uint64_t lost = 0;
  std::uint64_t wrong = 0;

  [[nodiscard]] bool right() const noexcept { return wrong == 0 && lost == 0; }
  [[nodiscard]] double speedup() const noexcept { return baseline_seconds / seconds; }
  // Whether it, or what it is compared with, took less time than the link takes for the bytes: then it is no result.
  [[nodiscard]] bool beats_link() const noexcept {
    return rate_bits != 0 &&
           (seconds < 8 * link_bytes / rate_bits || baseline_seconds < 8 * baseline_bytes / rate_bits);
  }
};

DemoResult demo_result(const Json& report);  // throws Json::exception

std::string title_of(const DemoResult& result);     // "uniform, 1% non-zero"
std::string strategy_of(const DemoResult& result);  // "auto: split"
std::string verdict_of(const DemoResult& result);   // what is known of every element: "rounded once", "within 9e-10"

struct Term {
  std::string word;
  std::string meaning;
};

struct DemoStory {
  std::string headline;
  std::vector<std::string> setting;  // sentences: links, gradients, baseline, machine
  std::vector<Term> words;
  std::vector<Term> next;  // commands and pages
};

// `first` is the report of the first result.
DemoStory tell_story(const Json& first, const std::vector<DemoResult>& results);

}  // namespace peel::cli
