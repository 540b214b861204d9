// How one chunk gets its sum: a run of stages, each of which may request collectives, one class for each strategy. What
// a stage does to the array, its place does (place.h): no strategy knows where the array lies.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "allreduce/choice.h"
#include "allreduce/estimate.h"
#include "allreduce/history.h"
#include "allreduce/place.h"
#include "allreduce/scratch.h"
#include "allreduce/view.h"
#include "codec/engine.h"
#include "peel/exchange.h"
#include "peel/grain.h"

namespace peel::detail {

// Zeros, in whichever memory; nothing where there is no array.
void clear(const World& world, Dense array);

// Everything a run and a place need of their chunk.
struct Chunk {
  const World& world;
  const StateOptions& options;
  ChunkHistory& history;
  ChunkScratch& scratch;
  Report& report;      // of the whole exchange: runs add to it
  StepEnergy& energy;  // the same
  ChunkShape shape;
  ChunkView view;
  Choice choice;
  Backend backend;      // resolved for the whole exchange: the environment may change while it is under way
  Dense residual = {};  // of a dense chunk, or nothing; x is this worker's own until the sum is written
  std::unique_ptr<ChunkPlace> place = {};

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

class StrategyRun {
 public:
  virtual ~StrategyRun() = default;
  // Called first, then whenever all it requested is complete. Adds to `requests`, or leaves them empty: the chunk is
  // done.
  void step(Chunk& chunk, Requests& requests);

 protected:
  // One stage. Where it requests nothing and does not finish, the next one follows at once.
  virtual void advance(Chunk& chunk, Requests& requests) = 0;
  void finish() noexcept { finished_ = true; }
  // The last stage of runs that know the union: looks for a better grain where that is due.
  void finish_with_grain(Chunk& chunk, Requests& requests);

 private:
  bool looks_for_grain_ = false;
  bool finished_ = false;
};

std::unique_ptr<StrategyRun> make_run(Strategy strategy);
std::unique_ptr<StrategyRun> make_dense();
std::unique_ptr<StrategyRun> make_packed();
std::unique_ptr<StrategyRun> make_sketch();
std::unique_ptr<StrategyRun> make_split();
std::unique_ptr<StrategyRun> make_gather();

PlanOptions grain_options(const Chunk& chunk);  // what best_grain is asked with

// A collective of the chunk's scratch, in the memory of its array. It is cleared, but for its buffers.
Collective& request(Chunk& chunk, Collective::Kind kind, Requests& requests, std::size_t number = 0);
// The sum of numbers, in place.
void request_sum(Chunk& chunk, ElementType type, std::span<std::byte> numbers, Requests& requests,
                 std::size_t number = 0);

// For split and gather, which move items.
// Encodes the items of this worker, and requests their lengths. `name` is for profilers.
void begin_items(Chunk& chunk, Requests& requests, const char* name);
// Requests the items themselves. False: a worker had too little room, so that lengths are requested once more.
[[nodiscard]] bool send_items(Chunk& chunk, Requests& requests);
// Once the sums are in the array.
void learn_items(Chunk& chunk, const ItemCounts& counts);

void report_exactness(Report& report, Exactness exactness);

// The bound of the least exact chunk, and its scale.
void report_scale(Report& report, const Plan& plan);

}  // namespace peel::detail
