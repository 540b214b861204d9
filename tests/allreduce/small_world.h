// One all-reduce among workers around a table (round_table.h), on gradients whose sum is known.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "allreduce/known_gradients.h"
#include "allreduce/round_table.h"
#include "allreduce/workers.h"
#include "peel/exchange.h"
#include "peel/scratch.h"

namespace peel::testing {

enum class View : std::uint8_t { dense, sparse };

// Workers that keep their states from step to step, and the memory that exchanges work in: a step finds there what
// earlier ones left.
class SmallWorld {
 public:
  SmallWorld(unsigned workers, const StateOptions& options, World world = {.link = kSlowLink}) : world_(world) {
    world_.size = workers;
    for (unsigned w = 0; w < workers; ++w) {
      states_.emplace_back(options);
      pools_.push_back(std::make_shared<ScratchPool>());
    }
  }

  [[nodiscard]] std::vector<State>& states() { return states_; }
  [[nodiscard]] const StateOptions& options() const { return states_[0].options(); }
  [[nodiscard]] World world(unsigned rank) const {
    World one = world_;
    one.rank = rank;
    one.scratch = pools_[rank];
    return one;
  }

  // Every worker's sum must be the known one, and all reports must agree about it; returns worker 0's.
  Report step(const KnownStep& known, ElementType type, View view, std::uint64_t seed) {
    const auto size = static_cast<unsigned>(states_.size());
    RoundTable table(seed);
    std::vector<Array> arrays(size);
    std::vector<Sparse> own(size), sums(size);
    for (unsigned w = 0; w < size; ++w) {
      if (view == View::dense) {
        arrays[w] = Array(known.workers[w].dense(type), type);
        table.join(std::make_unique<Exchange>(states_[w], world(w), arrays[w].view()));
      } else {
        own[w] = known.workers[w].sparse(type, options().grain);
        table.join(std::make_unique<Exchange>(states_[w], world(w), own[w], sums[w]));
      }
    }
    table.run();
    for (unsigned w = 0; w < size; ++w) {
      const std::string who = "worker " + std::to_string(w) + ": ";
      demand(!table.error(w), who + (table.error(w) ? table.error(w)->what() : ""));
      const std::string wrong = view == View::dense ? difference(known.sum, type, arrays[w].bytes())
                                                    : difference(known, options().grain, sums[w]);
      demand(wrong.empty(), who + wrong + ", " + table.report(w).to_json());
      demand(table.report(w).lost == 0, who + "items were lost");
      same_report(table.report(0), table.report(w), who);
    }
    return table.report(0);
  }

 private:
  static void same_report(const Report& a, const Report& b, const std::string& who) {
    demand(a.strategy == b.strategy && a.grain == b.grain && a.index == b.index && a.chunks == b.chunks &&
               a.exactness == b.exactness && a.error_bound == b.error_bound && a.scale == b.scale &&
               a.items == b.items && a.union_elements == b.union_elements && a.rounds == b.rounds &&
               a.peel_rounds == b.peel_rounds && a.repaired == b.repaired && a.rescaled == b.rescaled &&
               a.not_finite == b.not_finite && a.reset == b.reset,
           who + "its report differs from worker 0's: " + a.to_json() + " " + b.to_json());
  }

  std::vector<State> states_;
  std::vector<std::shared_ptr<ScratchPool>> pools_;  // one for each worker
  World world_;
};

}  // namespace peel::testing
