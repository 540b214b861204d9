// Adds the items of all workers: in rank order, in a type wide enough that only the end rounds. The sum has the same
// bits in every run and on every transport, and is closer to the true one than any dense sum.
//
//   float32, float16, bfloat16   double
//   float64                      a pair of doubles (error-free transformation of each addition)
//   integers                     their own type, modulo its width, as any all-reduce adds them
#pragma once

#include <cstdint>
#include <span>

#include "codec/engine.h"
#include "items/item_message.h"
#include "peel/buffer.h"
#include "peel/types.h"

namespace peel::detail {

// `words` becomes the union of all items, each of them at one of `positions`. Returns how many items it has.
std::uint64_t unite_items(const Engine& engine, std::uint64_t positions, std::span<const ItemView> views,
                          Buffer<std::uint64_t>& words);

// The sums of the items of a union, `grain` elements each, in order of position.
void add_items(const Engine& engine, ElementType type, std::uint32_t grain, std::span<const ItemView> views,
               std::span<const std::uint64_t> words, std::byte* sums);

// The same for single elements, each to where it belongs in an array.
void add_items_in_place(const Engine& engine, ElementType type, std::span<const ItemView> views,
                        std::span<const std::uint64_t> words, std::byte* array);

// out[i] = the sum of parts[0][i], parts[1][i] ... in that order, for `count` elements. `out` may be one of the parts.
void add_arrays(ElementType type, std::span<const std::byte* const> parts, std::uint64_t count, std::byte* out);

}  // namespace peel::detail
