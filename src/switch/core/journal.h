// What happened, for whoever keeps the log: one event for each join, refusal, departure, death and end of a job.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace peel::aggregator {

struct Event {
  std::string_view what;                                        // as in "join"
  std::vector<std::pair<std::string_view, std::string>> facts;  // as in job, run 7
};

// Called while lanes may stand still, so it must not wait for anything.
using Journal = std::function<void(const Event&)>;

}  // namespace peel::aggregator
