// How large things must be: the theory of the paper and what block-wise peeling adds to it. Integers only.
#pragma once

#include <cstdint>

#include "peel/geometry.h"

namespace peel::detail {

inline constexpr std::uint64_t kMaxSubtable = 21845;  // the cells of a block are numbered in 16 bits

// N H(n / N) in bits, rounded up: what naming n of N positions costs.
std::uint64_t entropy_bits(std::uint64_t positions, std::uint64_t items);

struct SketchSize {
  std::uint32_t blocks;
  std::uint32_t subtable;  // cells of each of a block's three subtables
};

// Enough for `items` of `positions`, dealt in groups of 2^group_log2, to peel in all but about 3 of 1000 messages.
SketchSize size_sketch(std::uint64_t positions, std::uint64_t items, std::uint32_t group_log2);

// The best use of a given number of cells.
SketchSize fit_sketch(std::uint64_t positions, std::uint64_t cells);

// How wide the permutation of local ids is: one-to-one into cells where that is possible.
std::uint32_t permutation_bits(std::uint64_t local_ids, std::uint32_t subtable);
std::uint64_t local_ids(std::uint64_t positions, std::uint32_t blocks, std::uint32_t group_log2);

struct BloomSize {
  std::uint64_t rows;
  std::uint32_t hashes;
  std::uint64_t candidates;  // items and expected false positives; of a sketch, as many as there must be room for
  std::uint64_t total_bits;  // rows, and `item_bits` for every candidate
};

// The filter that makes index and payload together smallest when a candidate costs `item_bits` in the payload. A packed
// payload is as long as it must be; that of a sketch is fixed, and has room for the false positives that come in
// clusters where items do.
BloomSize size_bloom(std::uint64_t positions, std::uint64_t items, std::uint64_t item_bits, Codec codec);

// What the coded list of n of N positions takes, in bits: close above the entropy, and a directory.
std::uint64_t expected_list_bits(std::uint64_t positions, std::uint64_t items);

}  // namespace peel::detail
