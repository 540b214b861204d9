// Averages: every worker multiplies its values by 1/W before they are summed, each product rounded to its type. So does
// DistributedDataParallel, and results have the same bits; and only items are multiplied, not the zeros between them,
// which saves a pass over the array.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "peel/codec.h"
#include "peel/types.h"

namespace peel::detail {

// to[i] = from[i] * factor, for floats; `to` may be `from`. Products of 16-bit floats are rounded to float32 first.
void multiply(ElementType type, double factor, std::span<const std::byte> from, std::byte* to);

// The same for the values of a support that was just scanned; what the caller owns is not written.
void multiply(ElementType type, double factor, Support& support);

}  // namespace peel::detail
