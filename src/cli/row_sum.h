// What a sparse all-reduce is compared with: everybody gets everybody's rows, and adds them.
#pragma once

#include <cstdint>
#include <span>

#include "peel/communicator.h"
#include "peel/gradient.h"

namespace peel::cli {

// sum = all parts added in their order, in the element type; their items must be sorted.
void add_rows(std::span<const ConstSparse> parts, std::uint32_t grain, Sparse& sum);

// Gathers items and values over a communicator, then adds them.
void gather_rows(Communicator& communicator, ConstSparse mine, std::uint32_t grain, Sparse& sum);

}  // namespace peel::cli
