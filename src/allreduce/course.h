// How one chunk gets its sum: a course of steps, each asking for collectives, one class for each strategy.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "allreduce/choice.h"
#include "allreduce/estimate.h"
#include "allreduce/history.h"
#include "allreduce/scratch.h"
#include "allreduce/view.h"
#include "codec/engine.h"
#include "peel/exchange.h"
#include "peel/grain.h"

namespace peel::detail {

// Zeros, in whichever memory; nothing where there is no array.
void clear(const World& world, Dense array);

// Everything a course needs of its chunk.
struct Chunk {
  const World& world;
  const StateOptions& options;
  ChunkHistory& history;
  ChunkScratch& scratch;
  Report& report;      // of the whole exchange: courses add to it
  StepEnergy& energy;  // the same
  ChunkShape shape;
  ChunkView view;
  Choice choice;
  Backend backend;      // resolved for the whole exchange: the environment may change while it is under way
  Dense residual = {};  // of a dense chunk, or nothing; x is this worker's own until the sum is written

  [[nodiscard]] bool estimates() const { return choice.strategy == Strategy::sketch && shape.estimate_bytes != 0; }
  void clear_residual() const { clear(world, residual); }  // nothing is missed
  [[nodiscard]] Execution execution() const {
    Execution with = options.execution;
    with.backend = backend;
    with.workspace = &scratch.workspace;
    return with;
  }
  [[nodiscard]] const Engine& engine() const { return engine_of(backend); }
  void log(std::string_view sentence) const {
    if (options.log) options.log(sentence);
  }
};

// Names the time spent here in the report, and in profilers.
class Timed {
 public:
  Timed(double& seconds, const char* name);
  ~Timed();
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  double& seconds_;
  std::chrono::steady_clock::time_point start_;
};

using Asks = std::vector<Collective*>;

class Course {
 public:
  virtual ~Course() = default;
  // Called first, then whenever all it asked for is complete. Adds to `asks`, or leaves it empty: the chunk is done.
  virtual void step(Chunk& chunk, Asks& asks) = 0;
  // What it asked for last was not begun and never will be.
  virtual void withdraw() noexcept {}
};

std::unique_ptr<Course> make_course(Strategy strategy);
std::unique_ptr<Course> make_dense();
std::unique_ptr<Course> make_packed();
std::unique_ptr<Course> make_sketch();
std::unique_ptr<Course> make_split();
std::unique_ptr<Course> make_gather();

// Looks for the best grain in the sum, now and then: every worker at the same steps, since all see the same sums. In
// host memory with one call; on a device whoever looks takes the parts of it.
void learn_grain(Chunk& chunk);
bool wants_grain(const Chunk& chunk);
PlanOptions grain_options(const Chunk& chunk);  // what best_grain is asked with
void learn_grain(Chunk& chunk, const GrainChoice& best);

// For a dense course, whose sum nobody counts: notes a step, and says whether the items of its sum shall be counted,
// where no grain is looked for.
bool note_dense_step(Chunk& chunk);
void learn_count(ChunkHistory& history, std::uint64_t items);

// Asks for the sum of numbers, in place, through `sum`, a collective of the chunk's scratch.
void ask_sum(Collective& sum, ElementType type, std::span<std::byte> numbers, Asks& asks);

void report_exactness(Report& report, Exactness exactness);

// The bound of the least exact chunk, and its scale.
void report_scale(Report& report, const Plan& plan);

}  // namespace peel::detail
