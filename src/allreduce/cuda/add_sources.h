// The sum of the items of several messages, each element in rank order and rounded once, as add_items.h adds them on
// the host: bits are the same.
#pragma once

#include "codec/cuda/kernels.h"

namespace peel::cuda::detail {

// Items that were read from a message, and their values in order.
struct AddedItems {
  Items items;  // counted
  const void* values = nullptr;
  std::uint64_t room = 0;          // elements there are values for
  const Status* status = nullptr;  // of reading this piece of the message
  const Status* before = nullptr;  // items and flags of all pieces before this one
  Status* after = nullptr;         // becomes the same with this piece
};

// Writes every element of the tiles `where` of x: the sum, or zero. status->items += the items of the union, and
// status->recovered += those of all sources. With any flag in a source, of this piece
// or of one before, nothing is written.
cudaError_t add_sources(const Geometry& g, const AddedItems* sources, unsigned count, void* x, const Stripes& where,
                        Status* status, cudaStream_t stream);

}  // namespace peel::cuda::detail
