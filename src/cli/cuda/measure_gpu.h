// A measurement on a GPU. The arrays are copied there and back outside of what is timed.
#pragma once

#include "cli/gpus.h"

namespace peel::cli {

std::vector<GpuInfo> find_gpus();

// Throws Failure where there is no GPU.
Measurement measure_on_gpu(const Gradients& gradients, const MeasureOptions& options);

}  // namespace peel::cli
