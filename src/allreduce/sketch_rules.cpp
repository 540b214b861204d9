#include "allreduce/sketch_rules.h"

#include <algorithm>
#include <string>

namespace peel::detail {

bool knows_sketch(const Chunk& chunk) {
  return chunk.history.steps != 0 && (chunk.history.has_magnitude != 0 || is_integer(chunk.view.type()));
}

void calibrate_sketch(Chunk& chunk, const Vitals& seen) {
  learn_magnitude(chunk, seen);
  if (chunk.history.steps == 0) {
    chunk.history.items = std::min<std::uint64_t>(seen.items * chunk.world.size, chunk.choice.plan.items());
  }
  plan_sketch_again(chunk);
}

void plan_sketch_again(Chunk& chunk) {
  chunk.choice.plan = plan_for(Strategy::sketch, chunk.options, chunk.world, chunk.shape, chunk.history);
}

void replace_by_packed(Chunk& chunk, Unfit why) {
  if (why == Unfit::not_finite) ++chunk.report.not_finite;
  chunk.log(why == Unfit::not_finite ? "A worker has NaN or infinity; the chunk is exchanged as packed."
                                     : "Values fit no fixed-point scale; the chunk is exchanged as packed.");
  StateOptions plain = chunk.options;
  plain.index = Index::bitmap;  // its size depends on nothing that was not agreed
  chunk.choice = {Strategy::packed, plan_for(Strategy::packed, plain, chunk.world, chunk.shape, chunk.history)};
}

void report_sketch(Chunk& chunk, std::uint64_t items, std::uint64_t lost, std::uint32_t rounds) {
  const Plan& plan = chunk.choice.plan;
  const bool estimate = chunk.estimates();
  Report& report = chunk.report;
  // Sums of float cells lose bits to whatever shares a cell, and nobody can say how many.
  const bool bounded = plan.cells() != CellType::float32 && (!estimate || lost == 0);
  report_exactness(report, bounded ? Exactness::fixed_point : Exactness::estimated);
  report_scale(report, plan);
  report.peel_rounds = std::max(report.peel_rounds, rounds);
  report.items += items;
  report.union_elements += items * plan.grain();
  if (estimate) report.lost += lost;
}

void report_repair(Chunk& chunk, std::uint64_t lost) {
  chunk.report.repaired += lost;
  chunk.log(std::to_string(lost) + " items did not peel and are exchanged again.");
}

}  // namespace peel::detail
