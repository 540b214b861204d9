// The arithmetic of coded lists (docs/format.md), one header for host and device: what is coded, which parameter, the
// words of the head and of the directory, where a position is. Who finds, writes and reads the bits is no part of it
// (codec/list_index.cpp, codec/cuda/list.cu).
//
// A gap is (position - previous position - 1). A chunk is the gaps of 512 positions: first the `parameter` low bits of
// each, then of each the rest in unary, as so many zeros and a one.
#pragma once

#include <bit>
#include <cstdint>

#include "plan/host_device.h"

namespace peel::detail {

inline constexpr std::uint32_t kListChunk = 512;
inline constexpr std::uint64_t kListOfOthers = std::uint64_t{1} << 63;  // in the head
inline constexpr std::uint32_t kChunkBaseBits = 43;
inline constexpr std::uint32_t kChunkParameterBits = 6;
inline constexpr std::uint32_t kLongestParameter = 48;

PEEL_HOST_DEVICE std::uint64_t low_mask(std::uint32_t bits) { return (std::uint64_t{1} << bits) - 1; }  // below 64

// ---- what is coded: the positions of the items, or of all others where those are fewer

struct CodedPositions {
  std::uint64_t count;
  bool others;

  [[nodiscard]] PEEL_HOST_DEVICE std::uint64_t chunks() const { return (count + kListChunk - 1) / kListChunk; }
  // How many positions a chunk has: the last one has fewer.
  [[nodiscard]] PEEL_HOST_DEVICE std::uint32_t in_chunk(std::uint64_t chunk) const {
    const std::uint64_t left = count - chunk * kListChunk;
    return static_cast<std::uint32_t>(left < kListChunk ? left : kListChunk);
  }
};

PEEL_HOST_DEVICE CodedPositions coded_positions(std::uint64_t positions, std::uint64_t items) {
  const bool others = items > positions / 2;
  return {others ? positions - items : items, others};
}

PEEL_HOST_DEVICE std::uint64_t list_head(CodedPositions coded) {
  return coded.count | (coded.others ? kListOfOthers : 0);
}
PEEL_HOST_DEVICE CodedPositions read_list_head(std::uint64_t head) {
  return {head & ~kListOfOthers, (head & kListOfOthers) != 0};
}

// ---- the parameter

// The bits of so many gaps with a parameter, but for the zeros of their unary parts.
PEEL_HOST_DEVICE std::uint64_t bits_without_zeros(std::uint32_t parameter, std::uint64_t gaps) {
  return gaps * (parameter + 1);
}

// A chunk with one parameter: the bits that all its gaps take.
struct ChunkCode {
  std::uint32_t parameter = 0;
  std::uint64_t bits = ~std::uint64_t{0};

  // Takes another parameter if it needs fewer bits. Parameters are tried in ascending order, so of equal ones the
  // smallest stays, and every encoder writes the same.
  PEEL_HOST_DEVICE void consider(std::uint32_t other, std::uint64_t needed) {
    if (needed < bits) {
      bits = needed;
      parameter = other;
    }
  }
  [[nodiscard]] PEEL_HOST_DEVICE std::uint32_t words() const { return static_cast<std::uint32_t>((bits + 63) / 64); }
};

// The parameters that are tried for gaps with this sum: up to three near the logarithm of the mean gap.
struct ParameterRange {
  std::uint32_t first;
  std::uint32_t last;
};
PEEL_HOST_DEVICE ParameterRange parameters_for(std::uint64_t sum, std::uint64_t gaps) {
#if defined(__CUDA_ARCH__)
  const auto last = static_cast<std::uint32_t>(64 - __clzll(static_cast<long long>(sum / gaps)));
#else
  const auto last = static_cast<std::uint32_t>(std::bit_width(sum / gaps));
#endif
  return {last > 1 ? last - 2 : 0, last};
}

// No chunk of an encoder has more words. 2^last is more than the mean gap, so with `last` the unary parts have fewer
// zeros than there are gaps, and a gap takes at most last + 2 bits. Gaps are below 2^43, so `last` is at most 43.
inline constexpr std::uint32_t kLongestChunk = kListChunk * (kChunkBaseBits + 2) / 64;

// ---- the directory: a word for each chunk

struct ChunkEntry {
  std::uint64_t base;  // the position after the last one of the chunk before
  std::uint32_t parameter;
  std::uint32_t words;  // of its codes

  // Whether so many gaps can be coded in these words at all.
  [[nodiscard]] PEEL_HOST_DEVICE bool holds(std::uint32_t gaps) const {
    return parameter <= kLongestParameter && gaps * parameter + gaps <= words * 64;
  }
};
static_assert(kLongestChunk < 1u << (64 - kChunkBaseBits - kChunkParameterBits), "a chunk fits its directory");

PEEL_HOST_DEVICE std::uint64_t directory_word(const ChunkEntry& entry) {
  return entry.base | std::uint64_t{entry.parameter} << kChunkBaseBits |
         std::uint64_t{entry.words} << (kChunkBaseBits + kChunkParameterBits);
}
PEEL_HOST_DEVICE ChunkEntry read_directory_word(std::uint64_t word) {
  return {word & ((std::uint64_t{1} << kChunkBaseBits) - 1),
          static_cast<std::uint32_t>(word >> kChunkBaseBits) & ((1u << kChunkParameterBits) - 1),
          static_cast<std::uint32_t>(word >> (kChunkBaseBits + kChunkParameterBits))};
}

// ---- a position

// Whether unary parts with so many zeros can be those of a chunk. With this bound no position overflows: low parts
// are below 2^57 in sum.
PEEL_HOST_DEVICE bool zeros_are_possible(std::uint64_t zeros, std::uint64_t positions, std::uint32_t parameter) {
  return zeros <= positions >> parameter;
}

// Position k of a chunk. `lows` is the base and the low parts up to and with that of k, `zeros` are those of the unary
// parts up to and with that of k.
PEEL_HOST_DEVICE std::uint64_t position_at(std::uint64_t lows, std::uint64_t zeros, std::uint32_t parameter,
                                           std::uint64_t k) {
  return lows + (zeros << parameter) + k;
}

}  // namespace peel::detail
