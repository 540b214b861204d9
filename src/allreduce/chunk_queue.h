// Chunks under way stand in a queue. The first one steps when all it requested is complete, and goes to the end of the
// queue; a chunk that is done makes room for the next. So the order of collectives depends on what was requested, never
// on which of them happened to complete first, and is the same on every worker.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

#include "allreduce/accounting.h"
#include "allreduce/chunk_plans.h"
#include "allreduce/scratch.h"
#include "allreduce/strategy_run.h"
#include "allreduce/summed_array.h"

namespace peel::detail {

class ChunkQueue {
 public:
  // All of them outlive it.
  ChunkQueue(const World& world, StateData& state, const SummedArray& array, const ChunkPlans& plans,
             const Backend& backend, Accounting& accounting)
      : world_(world), state_(state), array_(array), plans_(plans), backend_(backend), accounting_(accounting) {}

  // Lets chunks step until one has requested something, or until the first one has to wait.
  void advance();
  // What a chunk has requested and nobody was told yet, or null.
  [[nodiscard]] Collective* take();
  [[nodiscard]] bool complete(const Collective& done);  // false: no chunk requested it
  [[nodiscard]] bool done() const { return queue_.empty() && admitted_ == plans_.choices().size(); }
  [[nodiscard]] std::vector<Sparse>& parts() noexcept { return parts_; }  // sums of sparse chunks

  // What was requested was told nobody, and never will be: it begins anew.
  void withdraw();
  // An exchange ends before its time.
  void abandon() noexcept;

 private:
  struct Active {
    std::unique_ptr<LentScratch> lent;
    Chunk chunk;
    std::unique_ptr<StrategyRun> run;
    unsigned outstanding = 0;
    std::uint32_t rounds = 0;
  };

  void admit();
  [[nodiscard]] std::unique_ptr<Active> make_active(std::size_t number);
  [[nodiscard]] std::unique_ptr<StrategyRun> make_run_of(std::size_t number, Strategy strategy) const;
  [[nodiscard]] std::unique_ptr<ChunkPlace> make_place() const;
  void retire();

  const World& world_;
  StateData& state_;
  const SummedArray& array_;
  const ChunkPlans& plans_;
  const Backend& backend_;
  Accounting& accounting_;
  std::size_t admitted_ = 0;
  std::deque<std::unique_ptr<Active>> queue_;
  Requests requests_;  // of the chunk that stepped last, not told yet
  std::vector<Sparse> parts_;
};

}  // namespace peel::detail
