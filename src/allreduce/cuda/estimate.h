// Estimates on the device: how much of a sum they missed, and what is fed back (allreduce/estimate.h).
#pragma once

#include "peel/cuda.h"
#include "peel/geometry.h"

namespace peel::cuda::detail {

// *sum += the squares of `count` values, of the elements of some items, of integers or floats. Workers may get sums
// that differ in their last bits.
cudaError_t add_energy(ElementType type, const void* values, std::uint64_t count, double* sum, cudaStream_t stream);
cudaError_t add_item_energy(const peel::detail::Geometry& g, const void* x, const std::uint64_t* items,
                            std::uint64_t count, double* sum, cudaStream_t stream);

// Elements of the items are multiplied by `trusted`; the residual, which holds x as it was before, becomes
// own - x * share there and zero elsewhere. Floats only. `scratch` has room for grain * count elements.
cudaError_t feed_back(const peel::detail::Geometry& g, const std::uint64_t* items, std::uint64_t count, double trusted,
                      double share, void* x, void* residual, void* scratch, cudaStream_t stream);

}  // namespace peel::cuda::detail
