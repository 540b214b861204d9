// Items as a bitmap over all item positions and values in order: what messages are made of, for those who move items
// themselves instead of handing messages to an aggregator.
#pragma once

#include <cstdint>
#include <span>

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

}  // namespace peel
