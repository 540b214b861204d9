#include "cli/joint_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/failure.h"
#include "cli/magnitude.h"
#include "cli/numbers.h"
#include "peel/grain.h"

namespace peel::cli {
namespace {

// A lone message is encoded to be merged with at least one other.
constexpr std::uint32_t kFewestWorkers = 2;

bool has_scale(const Plan& plan) {
  const bool fixed = plan.cells() == CellType::fixed32 || plan.cells() == CellType::fixed64;
  return fixed && !is_integer(plan.type());
}

}  // namespace

void JointPlan::add(const npy::Array& gradient, const std::string& label) {
  if (!union_) {
    union_.emplace(gradient.size);
    type_ = gradient.type;
    first_label_ = label;
  }
  if (gradient.size != union_->elements() || gradient.type != type_) {
    throw Failure(fmt::format("{} has {} {} but {} has {} {}; workers' gradients have one shape and type", label,
                              show_count(gradient.size), name(gradient.type), first_label_,
                              show_count(union_->elements()), name(type_)));
  }
  union_->unite(gradient.view());
  largest_ = std::max(largest_, largest_magnitude(gradient.view()));
  ++files_;
}

std::uint64_t JointPlan::expected_items(const PlanOptions& options, const PlanWishes& wishes) const {
  if (wishes.items) return *wishes.items;
  const std::uint64_t known = union_->items(options.grain, options.phase);
  const std::uint64_t missing = options.workers > files_ ? options.workers - files_ : 0;
  // Every missing worker brings as many items as the average one here, but no more than there are elements.
  const long double grown = static_cast<long double>(known) * (files_ + missing) / files_;
  return static_cast<std::uint64_t>(std::min<long double>(grown, union_->elements()));
}

Plan JointPlan::make(const PlanWishes& wishes) const {
  PlanOptions options = wishes.options;
  options.elements = union_->elements();
  options.type = type_;
  options.workers = wishes.workers.value_or(std::max(files_, kFewestWorkers));
  if (wishes.grain) {
    options.grain = *wishes.grain;
    options.phase = wishes.phase;
  } else {
    const GrainChoice choice = best_grain(union_->words(), options);
    options.grain = choice.grain;
    options.phase = choice.phase;
  }
  options.expected_items = expected_items(options, wishes);
  options.scale = wishes.scale.value_or(0);
  Plan plan = Plan::make(options);
  if (!wishes.scale && has_scale(plan)) {
    options.scale = fit_scale(largest_, plan.cells(), options.workers);
    plan = Plan::make(options);
  }
  return plan;
}

}  // namespace peel::cli
