// Items that did not peel, on the device: sorted, so that all workers have them in one order, and their cells.
#pragma once

#include "codec/cuda/kernels.h"

namespace peel::cuda::detail {

// Bytes of scratch for sorting so many items.
std::size_t sort_scratch_bytes(std::uint64_t count);
cudaError_t sort_items(const std::uint64_t* items, std::uint64_t* sorted, std::uint64_t count, void* scratch,
                       std::size_t scratch_bytes, cudaStream_t stream);

// The cells of some items of x, `grain` each, zero outside the array; and elements back from them.
cudaError_t take_cells(const Geometry& g, const Conversion& how, const void* x, const std::uint64_t* items,
                       std::uint64_t count, void* cells, cudaStream_t stream);
cudaError_t put_cells(const Geometry& g, const Conversion& how, const void* cells, const std::uint64_t* items,
                      std::uint64_t count, void* x, cudaStream_t stream);

}  // namespace peel::cuda::detail
