// What a plan means for kernels: which elements count, and how they become cells.
#pragma once

#include "codec/cuda/kernels.h"

namespace peel::cuda::detail {

Limits limits_of(const Geometry& g);
Conversion conversion_of(const Geometry& g);
Conversion plain(const Geometry& g);  // elements as they are

}  // namespace peel::cuda::detail
