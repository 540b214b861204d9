// A contest of workers that are threads of this process.
#pragma once

#include <vector>

#include "cli/contest.h"

namespace peel::cli {

struct ThreadContest {
  std::vector<Standing> standings;  // as worker 0 has them
  LinkFacts link;
};

// As many threads as the gradients have workers. Rows are compared with gathering them all. Throws the first error of
// any worker, once all have ended.
ThreadContest hold_on_threads(const Gradients& gradients, const ContestOptions& options);

}  // namespace peel::cli
