// Chunks under way stand in a queue. The first one steps when all it asked for is complete, and goes to the end of the
// queue; a chunk that is done makes room for the next. So the order of collectives depends on what was asked, never on
// which of them happened to complete first, and is the same on every worker.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

#include "allreduce/accounting.h"
#include "allreduce/chunk_plans.h"
#include "allreduce/course.h"
#include "allreduce/scratch.h"
#include "allreduce/summed_array.h"

namespace peel::detail {

class ChunkQueue {
 public:
  // All of them outlive it.
  ChunkQueue(const World& world, StateData& state, const SummedArray& array, const ChunkPlans& plans,
             const Backend& backend, Accounting& accounting)
      : world_(world), state_(state), array_(array), plans_(plans), backend_(backend), accounting_(accounting) {}

  // Lets chunks step until one has asked for something, or until the first one has to wait.
  void advance();
  // What a chunk has asked for and nobody was told yet, or null.
  [[nodiscard]] Collective* take();
  [[nodiscard]] bool complete(const Collective& done);  // false: no chunk asked for it
  [[nodiscard]] bool done() const { return queue_.empty() && admitted_ == plans_.choices().size(); }
  [[nodiscard]] std::vector<Sparse>& parts() noexcept { return parts_; }  // sums of sparse chunks

  // What was asked for was told nobody, and never will be: it begins anew.
  void withdraw();
  // An exchange ends before its time.
  void abandon() noexcept;

 private:
  struct Active {
    std::unique_ptr<LentScratch> lent;
    Chunk chunk;
    std::unique_ptr<Course> course;
    unsigned outstanding = 0;
    std::uint32_t rounds = 0;
  };

  void admit();
  [[nodiscard]] std::unique_ptr<Active> make_active(std::size_t number);
  [[nodiscard]] std::unique_ptr<Course> make_course_of(std::size_t number, Strategy strategy) const;
  void retire();

  const World& world_;
  StateData& state_;
  const SummedArray& array_;
  const ChunkPlans& plans_;
  const Backend& backend_;
  Accounting& accounting_;
  std::size_t admitted_ = 0;
  std::deque<std::unique_ptr<Active>> queue_;
  Asks asks_;  // of the chunk that stepped last, not told yet
  std::vector<Sparse> parts_;
};

}  // namespace peel::detail
