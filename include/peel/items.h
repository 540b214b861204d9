// Items as a bitmap over all item positions and values in order: what messages are made of, for those who move items
// themselves instead of handing messages to an aggregator.
#pragma once

#include <cstdint>
#include <span>

#include "peel/buffer.h"
#include "peel/codec.h"

namespace peel {

// The items of one worker: Support::words() and Support::values(). A sparse view's values must stay where they are.
void scan(const Plan& plan, ConstDense x, Support& own, const Execution& execution = {});
void scan(const Plan& plan, ConstSparse x, Support& own, const Execution& execution = {});

// What encode() and encode_index() do after they have scanned an array; `own` was scanned with the same plan.
void encode(const Plan& plan, Support& own, Message& message, const Execution& execution = {});
void encode_index(const Plan& plan, Support& own, Message& message, const Execution& execution = {});

// The whole array from the items of a bitmap (a bit for each of plan.items(), none past them) and their values, `grain`
// elements each, in order. Elements of other items become zero.
void expand(const Plan& plan, std::span<const std::uint64_t> words, const void* values, Dense x,
            const Execution& execution = {});

// How many items a bitmap has.
std::uint64_t count_items(std::span<const std::uint64_t> words);

// The positions of the items of a bitmap, in order; `positions` has room for all bits of `words` and 64 more. Returns
// how many there are.
std::uint32_t list_positions(std::span<const std::uint64_t> words, std::span<std::uint32_t> positions);

// A bitmap as a list, coded close to its entropy, and back (docs/format.md). Decoding throws peel::Error on lists that
// are damaged, never writes past `words`, and needs as many words as `positions` have.
void encode_positions(std::span<const std::uint64_t> words, std::uint64_t positions, std::uint64_t items,
                      Buffer<std::uint64_t>& list);
void decode_positions(std::span<const std::uint64_t> list, std::uint64_t positions, std::span<std::uint64_t> words);

}  // namespace peel
