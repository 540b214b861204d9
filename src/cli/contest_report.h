// A contest for programs (one JSON object for each strategy) and for people (one row of a table).
#pragma once

#include <string>
#include <vector>

#include "cli/contest.h"
#include "cli/json.h"

namespace peel::cli {

struct ContestSetting {
  std::string transport;
  Pattern pattern;
  const Gradients* gradients = nullptr;
  GradientOptions drawn;
  const ContestOptions* options = nullptr;
  LinkFacts link;
};

// Field names are a contract: other tools read them.
Json to_json(const ContestSetting& setting, const Standing& standing, const std::vector<Standing>& all);

std::string contest_heading();
std::string contest_row(const ContestSetting& setting, const Standing& standing, const std::vector<Standing>& all);

}  // namespace peel::cli
