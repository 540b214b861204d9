// From a bitmap of items to the index of a message and back, for all three kinds.
#pragma once

#include "codec/engine.h"
#include "peel/message.h"
#include "peel/plan.h"

namespace peel::detail {

// Makes room for a bitmap index and returns where its words go, for a scan to fill; null for the other kinds.
std::uint64_t* open_bitmap(const Geometry& g, Message& message);

// Completes message.index from the items of `own`; the flag word is cleared. A bitmap's words are in place already.
void write_index(const Engine& engine, const Run& run, const SupportData& own, Message& message);

// The bitmap that an index stands for: inside the message, or in `storage`. Throws peel::Error (corrupt_message).
const std::uint64_t* read_index(const Engine& engine, const Run& run, const Message& message,
                                Buffer<std::uint64_t>& storage);

}  // namespace peel::detail
