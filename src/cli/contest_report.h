// A contest for programs (one JSON object for each strategy) and for people (rows of a table).
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
  double rate_bits = 0;  // of links that were limited in user space; 0: they were not
};

// Field names are a contract: other tools read them.
Json to_json(const ContestSetting& setting, const Standing& standing, const std::vector<Standing>& all);

std::string contest_heading();
// What was summed and how long the baseline takes, above the rows of its strategies.
std::string contest_case(const ContestSetting& setting, const std::vector<Standing>& all);
std::string contest_row(const ContestSetting& setting, const Standing& standing, const std::vector<Standing>& all);

}  // namespace peel::cli
