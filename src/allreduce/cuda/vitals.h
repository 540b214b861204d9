// The vitals of a worker (allreduce/vitals.h), written on the device, where they are combined with an index.
#pragma once

#include "peel/cuda.h"

namespace peel::cuda::detail {

// words[0 .. kVitalWords): status->items and, of `count` elements of x, how large they are and whether all are finite.
// With a count of 0 nobody looks. `largest` is scratch.
cudaError_t write_vitals(ElementType type, const void* x, std::uint64_t count, const Status* status,
                         std::uint64_t* largest, std::uint64_t* words, cudaStream_t stream);

}  // namespace peel::cuda::detail
