// How an array is cut into chunks: pieces that are encoded, exchanged and decoded on their own, a few at a time, so
// that work on one hides the wire time of others and the workspace stays a fraction of the array.
#pragma once

#include <cstdint>
#include <vector>

#include "peel/exchange.h"
#include "peel/state.h"

namespace peel::detail {

struct Layout {
  std::vector<Share> chunks;  // in elements; of a reduce-scatter: within each share
};

// A dense array: chunks of at least 1 MiB, at most 32 of them. Boundaries are multiples of 1,024 elements, so that
// every grain and phase falls on them alike.
Layout cut_dense(const StateOptions& options, std::uint64_t elements, ElementType type);
// In device memory: as a whole up to 512 MiB. Kernels need no help to hide what they do, and every chunk costs
// launches.
Layout cut_device(const StateOptions& options, std::uint64_t elements, ElementType type);
Layout cut_sparse(const StateOptions& options);
Layout cut_shares(const StateOptions& options, std::uint64_t elements, ElementType type, unsigned workers);

}  // namespace peel::detail
