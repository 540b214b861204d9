#include "cli/thread_workers.h"

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "cli/row_sum.h"
#include "peel/inprocess.h"

namespace peel::cli {
namespace {

std::vector<Baseline> baselines_over(Communicator& communicator, View view) {
  if (view == View::dense) return {};
  return {{.name = "allgatherv", .sparse = [&communicator](ConstSparse x, std::uint32_t grain, Sparse& sum) {
             gather_rows(communicator, x, grain, sum);
           }}};
}

}  // namespace

ThreadContest hold_on_threads(const Gradients& gradients, const ContestOptions& options) {
  return hold_on_threads(make_inprocess(gradients.workers()), gradients, options);
}

ThreadContest hold_on_threads(std::vector<std::unique_ptr<Communicator>> communicators, const Gradients& gradients,
                              const ContestOptions& options) {
  const KnownSum known = known_sum(gradients, options);
  ThreadContest contest;
  std::mutex mutex;
  std::exception_ptr error;
  const auto work = [&](std::unique_ptr<Communicator>& mine) {
    try {
      const LinkFacts link = agree_on_link(*mine, options.state);
      std::vector<Standing> standings =
          hold_contest(*mine, gradients, known, baselines_over(*mine, options.view), options);
      if (mine->rank() == 0) contest = {std::move(standings), link};
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
      mine.reset();  // so that the others learn of it at once
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::unique_ptr<Communicator>& mine : communicators) threads.emplace_back(work, std::ref(mine));
  }
  if (error) std::rethrow_exception(error);
  return contest;
}

}  // namespace peel::cli
