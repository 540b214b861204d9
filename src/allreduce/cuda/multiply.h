// Averages on the device: the products that average.h makes on the host, bit for bit.
#pragma once

#include "peel/cuda.h"

namespace peel::cuda::detail {

// values[i] *= factor, for floats.
cudaError_t multiply(ElementType type, double factor, void* values, std::uint64_t count, cudaStream_t stream);

// The same for the status->items * grain values of a message, and no more than there is room for.
cudaError_t multiply_items(ElementType type, double factor, void* values, std::uint64_t room, std::uint32_t grain,
                           const Status* status, cudaStream_t stream);

}  // namespace peel::cuda::detail
