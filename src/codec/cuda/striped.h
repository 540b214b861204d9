// encode() of the tiles of an array that were dealt to one of several workers. The plan is that of their elements, as
// if they lay one after another. The workspace is for arrays alone: workspace_bytes(plan, items, Views::dense).
#pragma once

#include "codec/cuda/kernels.h"

namespace peel::cuda::detail {

struct Striped {
  const void* data = nullptr;  // of the whole array
  Stripes where;
};
void encode(const Plan& plan, const Striped& x, const Message& message, const Launch& launch);

}  // namespace peel::cuda::detail
