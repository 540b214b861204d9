// Between the sparse view and (item bitmap, values in order). Never touches N elements.
#pragma once

#include "codec/engine.h"
#include "peel/gradient.h"

namespace peel::detail {

// Throws peel::Error if the item numbers are not increasing or not in the plan. Where every item is whole and non-zero
// the support points at the caller's values instead of copying them. `index` as in Engine::scan.
void gather(const Geometry& g, ConstSparse x, SupportData& support, std::uint64_t* index);

// The items of `words` and their values. `lost` items are left out.
void emit(const Geometry& g, const std::uint64_t* words, std::uint64_t items, const std::byte* values,
          const std::vector<std::uint64_t>& lost, Sparse& x);

}  // namespace peel::detail
