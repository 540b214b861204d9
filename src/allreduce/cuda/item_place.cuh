// Where the elements of a list of items are.
#pragma once

#include <cstdint>

#include "peel/geometry.h"

namespace peel::cuda::detail {

// The element of place i among those of a list of items, `grain` for each, and whether the array has it.
struct ItemPlace {
  std::uint64_t element;
  bool inside;
  __device__ ItemPlace(const peel::detail::Geometry& g, const std::uint64_t* items, std::uint64_t i)
      : element((items[i >> g.grain_log2] << g.grain_log2) + (i & (g.grain - 1)) - g.lead),  // wraps before the array
        inside(element < g.elements) {}
};

}  // namespace peel::cuda::detail
