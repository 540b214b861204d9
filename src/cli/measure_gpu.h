// A measurement on a GPU. The arrays are copied there and back outside of what is timed.
#pragma once

#include "cli/measure.h"

namespace peel::cli {

// Throws Failure where this build has no CUDA, or where there is no GPU.
Measurement measure_on_gpu(const Gradients& gradients, const MeasureOptions& options);

}  // namespace peel::cli
