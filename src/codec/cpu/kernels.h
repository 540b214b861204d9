// The vector kernels of the cpu backend, each compiled for several instruction sets and picked at run time.
#pragma once

#include <cstddef>
#include <cstdint>

// Machines without AVX2 get the portable code: fewer instruction sets, half the build time.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)

#include "codec/values.h"
#include "peel/buffer.h"
#include "peel/geometry.h"

namespace peel::detail::cpu {

// Positions are element numbers plus `lead`, so that items start at multiples of the grain. A tile is what the scan
// reads at a time: sixteen pages, read in turn, because one core then gets 15 GB/s out of memory where a single stream
// yields 11 (Xeon Ice Lake, 2.8 GHz).
inline constexpr std::size_t kTileStreams = 16;
inline constexpr std::size_t kTileBytes = kTileStreams * 4096;

// Reads items [first_word * 64, end_word * 64) of x, writes their bitmap to words[first_word ...], and to copy[...] if
// that is not null, and appends the values of non-zero items to `values`. Returns how many items there are.
std::uint64_t scan_words(const Geometry& g, const std::byte* x, std::uint64_t first_word, std::uint64_t end_word,
                         std::uint64_t* words, std::uint64_t* copy, Buffer<std::byte>& values);

// Writes the elements of items [first_word * 64, end_word * 64); `values` starts with the first of them.
void expand_words(const Geometry& g, const std::uint64_t* words, std::uint64_t first_word, std::uint64_t end_word,
                  const std::byte* values, std::byte* x);

// Set bits of words[0 .. count), and whether own[i] is within words[i] everywhere (own may be null).
struct WordCount {
  std::uint64_t bits;
  bool contained;
};
WordCount count_words(const std::uint64_t* own, const std::uint64_t* words, std::size_t count);

// The positions of the set bits of words[0 .. count); `out` has room for all bits and 64 more. Returns how many.
std::uint32_t positions(const std::uint64_t* words, std::uint32_t count, std::uint32_t* out);

// Probes of runs [first_run, end_run), as the reference does it; only rows [first_row, end_row) are written.
void bloom_insert(const Geometry& g, const std::uint64_t* words, std::uint64_t first_row, std::uint64_t end_row,
                  std::uint64_t* rows);
void bloom_query(const Geometry& g, const std::uint64_t* rows, std::uint64_t first_run, std::uint64_t end_run,
                 std::uint64_t* words);

// Slots of the union's words [first, end): this worker's `values` as cells, zero where it has none. False if a value
// did not fit.
bool pack_words(const Geometry& g, const std::uint64_t* own, const std::uint64_t* words, std::uint64_t first,
                std::uint64_t end, const std::byte* values, std::byte* slots);

// to_cell and from_cell over arrays. False if a value did not fit.
bool to_cells(const Geometry& g, const std::byte* values, std::size_t count, std::byte* cells);
void from_cells(const Geometry& g, const std::byte* cells, std::size_t count, std::byte* values);

}  // namespace peel::detail::cpu
