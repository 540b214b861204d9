// A contest of workers that are threads of this process.
#pragma once

#include <memory>
#include <vector>

#include "cli/contest.h"

namespace peel::cli {

struct ThreadContest {
  std::vector<Standing> standings;  // as worker 0 has them
  LinkFacts link;
};

// A thread for each communicator, as many as the gradients have workers. Rows are compared with gathering them all.
// Throws the first error of any worker, once all have ended.
ThreadContest hold_on_threads(std::vector<std::unique_ptr<Communicator>> communicators, const Gradients& gradients,
                              const ContestOptions& options);
// Over the transport inprocess.
ThreadContest hold_on_threads(const Gradients& gradients, const ContestOptions& options);

}  // namespace peel::cli
