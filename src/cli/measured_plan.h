// The plan that a measurement asks for: of its options, of the gradients, and of the grain that fits them.
#pragma once

#include "cli/gradients.h"
#include "cli/measure.h"
#include "peel/plan.h"

namespace peel::cli {

// All but the grain and what follows from it.
PlanOptions plan_options(const Gradients& gradients, const MeasureOptions& options);

// With this grain, as many items as the union has, and a scale that fits where cells are fixed.
Plan make_plan(const Gradients& gradients, PlanOptions options, Grain grain);

}  // namespace peel::cli
