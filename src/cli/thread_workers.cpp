#include "cli/thread_workers.h"

#include <memory>
#include <utility>

#include "cli/on_threads.h"
#include "cli/parallel.h"
#include "cli/row_sum.h"

namespace peel::cli {
namespace {

std::vector<Baseline> baselines_over(Communicator& communicator, View view) {
  if (view == View::dense) return {};
  return {{.name = "allgatherv", .sparse = [&communicator](ConstSparse x, std::uint32_t grain, Sparse& sum) {
             gather_rows(communicator, x, grain, sum);
           }}};
}

}  // namespace

std::vector<Entrant> host_entrants(std::vector<std::unique_ptr<Communicator>> communicators, const Gradients& gradients,
                                   const ContestOptions& options) {
  std::vector<Entrant> entrants(communicators.size());
  on_threads(static_cast<unsigned>(entrants.size()), [&](unsigned worker) {
    Entrant& mine = entrants[worker];
    mine.communicator = std::move(communicators[worker]);
    mine.summand = host_summand(gradients, worker, options);
    mine.baselines = baselines_over(*mine.communicator, options.view);
  });
  return entrants;
}

ThreadContest hold_on_threads(std::vector<Entrant> entrants, const KnownSum& known, const ContestOptions& options) {
  ThreadContest contest;
  on_threads(static_cast<unsigned>(entrants.size()), [&](unsigned worker) {
    Entrant& mine = entrants[worker];
    try {
      const LinkFacts link = agree_on_link(*mine.communicator, options.state, options.memory);
      std::vector<Standing> standings = hold_contest(*mine.communicator, *mine.summand, known, mine.baselines, options);
      if (worker == 0) contest = {std::move(standings), link};
    } catch (...) {
      mine.communicator.reset();  // so that the others learn of it at once
      throw;
    }
  });
  return contest;
}

ThreadContest hold_on_threads(const Gradients& gradients, const ContestOptions& options,
                              const InprocessOptions& links) {
  const KnownSum known = known_sum(gradients, options, all_cores());
  return hold_on_threads(host_entrants(make_inprocess(gradients.workers(), links), gradients, options), known, options);
}

}  // namespace peel::cli
