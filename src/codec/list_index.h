// The list index: sorted item numbers as Rice-coded gaps, for messages that nobody combines by OR.
//
// Format (docs/format.md): a header word (bits 0..62: how many positions are coded; bit 63: they are the items that are
// NOT there), then a bit stream, lowest bit first, in chunks of up to 512 positions. A chunk is a 6-bit parameter r and
// its gaps; a gap is (position - previous position - 1), its r low bits first, then the rest in unary, ended by a one.
// For uniform supports this stays within 3% of the entropy at every density; Elias-Fano, which allows random access,
// needs 5 to 17% more. Coding takes about 8 ns an item and decoding 6 (2^26 positions at 1%, one Ice Lake core).
#pragma once

#include <cstdint>
#include <span>

#include "codec/engine.h"
#include "peel/buffer.h"

namespace peel::detail {

// The coded list of the `items` set bits of a bitmap over `positions` positions.
void encode_list(const Engine& engine, std::span<const std::uint64_t> words, std::uint64_t positions,
                 std::uint64_t items, Buffer<std::uint64_t>& list);

// The same from the positions themselves, at most half of them, in order.
void encode_list(std::span<const std::uint32_t> items, Buffer<std::uint64_t>& list);

// The bitmap of a coded list. Throws peel::Error (corrupt_message) on anything that encode_list cannot have written.
void decode_list(std::span<const std::uint64_t> list, std::uint64_t positions, std::uint64_t* words);

// The positions themselves, for lists of at most half of them (fewer than 2^32): exactly as many as `out` has room for,
// or it throws as well.
void decode_positions(std::span<const std::uint64_t> list, std::uint64_t positions, std::span<std::uint32_t> out);

}  // namespace peel::detail
