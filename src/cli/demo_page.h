// The demonstration as a web page of one file: a chart of time and one of bytes by density, and the numbers. It loads
// nothing, works without scripts, and follows the reader's choice of light or dark.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace peel::cli {

// One strategy on one kind of gradient.
struct DemoResult {
  std::string pattern;
  double density = 0;
  std::string strategy;
  std::string chosen;
  std::string baseline;
  double seconds = 0;
  double baseline_seconds = 0;
  double bytes = 0;
  double dense_bytes = 0;
  std::uint64_t lost = 0;
  std::uint64_t wrong = 0;
};

std::string demo_page(const std::string& subtitle, const std::vector<DemoResult>& results);

}  // namespace peel::cli
