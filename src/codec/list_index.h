// The list index: sorted item numbers as Rice-coded gaps, for messages that nobody combines by OR.
//
// Format (docs/format.md), in words:
//
//   head        bits 0..62: how many positions are coded; bit 63: they are the items that are NOT there
//   directory   a word for each chunk of 512 positions (the last is shorter): where the chunk starts (43 bits), its
//               parameter r (6 bits), how many words its codes take (15 bits)
//   codes       chunk after chunk: the r low bits of every gap, then the rest of every gap in unary, ended by a one
//
// A gap is (position - previous position - 1). Chunks say where they start and lie on words, so they can be decoded at
// the same time, a chunk by a warp: low parts are at a fixed stride, and the k-th one of the unary parts, which
// popcounts find, is the k-th gap's. On a CPU low and unary parts no longer wait for each other: of 2^26 positions at
// 1%, coding positions takes 3.6 ns an item and decoding 2.2 (one Ice Lake core), where one stream of whole codes took
// 4.8 and 3.3; bitmaps take 7.3 and 3.8, where it took 8.0 and 4.1.
//
// The directory and the padding of chunks cost 0.17 bits an item over one stream. Uniform supports take
// 2.4%, 2.7%, 4.3% and 7.5% more than the entropy at densities of 0.1%, 1%, 5% and 20%; Elias-Fano, which is read in
// parallel too, needs 5 to 17%.
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
