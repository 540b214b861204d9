#include "allreduce/cuda/shares.h"

#include <algorithm>

#include "items/item_message.h"

namespace peel::cuda::detail {

std::uint64_t Shares::elements(unsigned owner) const noexcept {
  const std::uint64_t positions = g_.elements + g_.lead;
  const std::uint64_t cycle = std::uint64_t{kTilePositions} * owners_;
  const std::uint64_t start = std::uint64_t{kTilePositions} * owner;
  const std::uint64_t rest = positions % cycle;
  const std::uint64_t own =
      positions / cycle * kTilePositions + (rest > start ? std::min<std::uint64_t>(kTilePositions, rest - start) : 0);
  return owner == 0 ? own - std::min<std::uint64_t>(own, g_.lead) : own;
}

Plan Shares::plan(unsigned owner, std::uint64_t items) const {
  PlanOptions options;
  options.elements = elements(owner);
  options.type = g_.type;
  options.workers = g_.workers;
  options.grain = g_.grain;
  options.phase = owner == 0 ? g_.phase : 0;  // other shares begin with a whole item
  options.seed = seed_;
  options.expected_items = items;
  options.index = Index::bitmap;
  const Plan bitmap = Plan::make(options);
  if (!peel::detail::wants_list(static_cast<double>(bitmap.items()), static_cast<double>(items))) return bitmap;
  options.index = Index::list;
  return Plan::make(options);
}

}  // namespace peel::cuda::detail
