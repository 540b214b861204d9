// A contest of workers that are threads of this process.
#pragma once

#include <memory>
#include <vector>

#include "cli/contest.h"
#include "peel/inprocess.h"

namespace peel::cli {

// What a worker brings along.
struct Entrant {
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<Summand> summand;
  std::vector<Baseline> baselines = {};
};

// With gradients in host memory, over any transport. Rows are compared with gathering them all.
std::vector<Entrant> host_entrants(std::vector<std::unique_ptr<Communicator>> communicators, const Gradients& gradients,
                                   const ContestOptions& options);

struct ThreadContest {
  std::vector<Standing> standings;  // as worker 0 has them
  LinkFacts link;
};

// A thread for each entrant, as many as the gradients have workers. Throws the first error of any worker, once all have
// ended.
ThreadContest hold_on_threads(std::vector<Entrant> entrants, const KnownSum& known, const ContestOptions& options);
// Over the transport inprocess.
ThreadContest hold_on_threads(const Gradients& gradients, const ContestOptions& options,
                              const InprocessOptions& links = {});

}  // namespace peel::cli
