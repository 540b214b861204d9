// Adds the items of all workers: in rank order, in a type wide enough that only the end rounds. The sum has the same
// bits in every run and on every transport, and is closer to the true one than any dense sum.
//
//   float32, float16, bfloat16   double
//   float64                      a pair of doubles (error-free transformation of each addition)
//   integers                     their own type, modulo its width, as any all-reduce adds them
#pragma once

#include <cstdint>
#include <span>

#include "allreduce/parcel.h"
#include "peel/buffer.h"
#include "peel/types.h"

namespace peel::detail {

struct AddedItems {
  std::uint64_t items = 0;  // in the union
  std::uint64_t added = 0;  // items of all workers, counted as often as they occur
};

// `words` and `values` become the union and its sums. All views have as many words.
AddedItems add_items(ElementType type, std::uint32_t grain, std::span<const ItemView> views,
                     Buffer<std::uint64_t>& words, Buffer<std::byte>& values);

// out[i] = the sum of parts[0][i], parts[1][i] ... in that order, for `count` elements. `out` may be one of the parts.
void add_arrays(ElementType type, std::span<const std::byte* const> parts, std::uint64_t count, std::byte* out);

}  // namespace peel::detail
