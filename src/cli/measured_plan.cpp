#include "cli/measured_plan.h"

#include <algorithm>

namespace peel::cli {
namespace {

bool is_fixed(CellType cells) { return cells == CellType::fixed32 || cells == CellType::fixed64; }

}  // namespace

PlanOptions plan_options(const Gradients& gradients, const MeasureOptions& options) {
  PlanOptions plan{.elements = gradients.elements(), .type = gradients.type(), .workers = gradients.workers()};
  plan.codec = options.codec;
  plan.cells = options.cells;
  plan.index = options.index;
  plan.allow_bloom = options.view == View::dense;  // reading a filter out costs a pass over all items
  plan.allow_list = options.index == Index::list;
  plan.seed = options.seed;
  if (options.payload_ratio > 0) {
    const double bytes = options.payload_ratio * static_cast<double>(gradients.dense_bytes());
    plan.payload_bytes = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(bytes));
  }
  return plan;
}

// The plan says which cells `automatic` are; only then is there a scale to fit.
Plan make_plan(const Gradients& gradients, PlanOptions options, Grain grain) {
  options.grain = grain.size;
  options.phase = grain.phase;
  options.expected_items = gradients.count_items(grain);
  const Plan unscaled = Plan::make(options);
  if (!is_fixed(unscaled.cells()) || is_integer(unscaled.type())) return unscaled;
  options.scale = fit_scale(gradients.largest(), unscaled.cells(), options.workers);
  return Plan::make(options);
}

}  // namespace peel::cli
