// One plan for the gradients of several workers, made from their files: the union of their supports sizes it and picks
// the grain, their largest value sets the scale.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/bitmap.h"
#include "cli/npy.h"
#include "peel/plan.h"

namespace peel::cli {

// What the caller asked for. `options` holds codec, cells, index, seed and headroom; the rest is found out if not
// given.
struct PlanWishes {
  PlanOptions options = {.allow_list = true};  // files are merged by peel::merge, never ORed
  std::optional<std::uint32_t> grain;
  std::uint32_t phase = 0;
  std::optional<std::uint64_t> items;
  std::optional<std::uint32_t> workers;
  std::optional<std::int32_t> scale;
};

class JointPlan {
 public:
  void add(const npy::Array& gradient, const std::string& label);  // throws Failure if it does not fit the others

  // Call after the last add(). Messages may still be merged with those of workers whose files are not here: with fewer
  // files than workers the union is taken to grow as if all supports were disjoint.
  [[nodiscard]] Plan make(const PlanWishes& wishes) const;

 private:
  [[nodiscard]] std::uint64_t expected_items(const PlanOptions& options, const PlanWishes& wishes) const;

  std::optional<Bitmap> union_;
  ElementType type_ = ElementType::float32;
  std::string first_label_;
  std::uint32_t files_ = 0;
  double largest_ = 0;
};

}  // namespace peel::cli
