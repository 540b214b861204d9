// The arithmetic of coded lists: words of head and directory, what is coded, the parameter.
#include "plan/coded_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "draw.h"

namespace peel::detail {
namespace {

TEST(CodedList, CodesWhatIsFewer) {
  for (std::uint64_t positions = 0; positions < 70; ++positions) {
    for (std::uint64_t items = 0; items <= positions; ++items) {
      const CodedPositions coded = coded_positions(positions, items);
      EXPECT_EQ(coded.count, std::min(items, positions - items));
      EXPECT_EQ(coded.others, positions - items < items);
      const CodedPositions again = read_list_head(list_head(coded));
      EXPECT_EQ(again.count, coded.count);
      EXPECT_EQ(again.others, coded.others);
    }
  }
  EXPECT_EQ(list_head({.count = 5, .others = true}), 0x8000000000000005u);
}

TEST(CodedList, HasChunksOf512) {
  for (const std::uint64_t count : {0ull, 1ull, 511ull, 512ull, 513ull, 1024ull, (1ull << 42) + 1}) {
    const CodedPositions coded{.count = count, .others = false};
    const std::uint64_t chunks = coded.chunks();
    EXPECT_EQ(chunks, count / 512 + (count % 512 != 0 ? 1 : 0));
    if (count == 0) continue;
    EXPECT_EQ((chunks - 1) * 512 + coded.in_chunk(chunks - 1), count);
    EXPECT_EQ(coded.in_chunk(0), std::min<std::uint64_t>(count, 512));
  }
}

TEST(CodedList, DirectoryWordsComeBack) {
  for (const std::uint64_t base : {std::uint64_t{0}, std::uint64_t{1}, low_mask(43)}) {
    for (const std::uint32_t parameter : {0u, 1u, 48u, 63u}) {
      for (const std::uint32_t words : {0u, 1u, kLongestChunk, 32'767u}) {
        const std::uint64_t word = directory_word({base, parameter, words});
        EXPECT_EQ(word, base | std::uint64_t{parameter} << 43 | std::uint64_t{words} << 49);
        const ChunkEntry entry = read_directory_word(word);
        EXPECT_EQ(entry.base, base);
        EXPECT_EQ(entry.parameter, parameter);
        EXPECT_EQ(entry.words, words);
      }
    }
  }
}

TEST(CodedList, EntriesHoldGapsThatFitTheirWords) {
  EXPECT_TRUE((ChunkEntry{0, 0, 8}.holds(512)));
  EXPECT_FALSE((ChunkEntry{0, 0, 7}.holds(512)));
  EXPECT_TRUE((ChunkEntry{0, 48, 392}.holds(512)));
  EXPECT_FALSE((ChunkEntry{0, 48, 391}.holds(512)));
  EXPECT_FALSE((ChunkEntry{0, 49, 32'767}.holds(1)));
  EXPECT_TRUE(zeros_are_possible(100, 100, 0));
  EXPECT_FALSE(zeros_are_possible(101, 100, 0));
  EXPECT_FALSE(zeros_are_possible(1, 100, 7));
}

std::uint64_t bits_with(const std::vector<std::uint64_t>& gaps, std::uint32_t parameter) {
  std::uint64_t bits = 0;
  for (const std::uint64_t gap : gaps) bits += parameter + 1 + (gap >> parameter);
  return bits;
}

// The one with the fewest bits of those that are tried, the smallest of equals, and never more than a chunk has room
// for.
TEST(CodedList, ChoosesTheParameterWithTheFewestBits) {
  testing::SeededDraw draw(3);
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::uint64_t> gaps(1 + draw.below(kListChunk));
    const std::uint64_t most =
        low_mask(static_cast<std::uint32_t>(draw.below(44))) / (draw.one_in(3) ? 1 : gaps.size());
    for (std::uint64_t& gap : gaps) gap = draw.below(most + 1) >> (draw.one_in(2) ? 0 : draw.below(20));
    const std::uint64_t sum = std::accumulate(gaps.begin(), gaps.end(), std::uint64_t{0});
    const ParameterRange range = parameters_for(sum, gaps.size());
    ASSERT_LE(range.last - range.first, 2u);
    ChunkCode code;
    for (std::uint32_t parameter = range.first; parameter <= range.last; ++parameter) {
      std::uint64_t zeros = 0;
      for (const std::uint64_t gap : gaps) zeros += gap >> parameter;
      code.consider(parameter, bits_without_zeros(parameter, gaps.size()) + zeros);
    }
    ASSERT_EQ(code.bits, bits_with(gaps, code.parameter));
    for (std::uint32_t parameter = range.first; parameter <= range.last; ++parameter) {
      ASSERT_GE(bits_with(gaps, parameter), code.bits + (parameter < code.parameter ? 1 : 0));
    }
    ASSERT_LE(code.words(), kLongestChunk);
    ASSERT_LE(code.parameter, kLongestParameter);
  }
}

TEST(CodedList, PositionsAreSumsOfGaps) {
  const std::uint64_t base = 1000;
  const std::uint32_t parameter = 3;
  const std::uint64_t gaps[] = {0, 7, 8, 100, 1};
  std::uint64_t lows = base, zeros = 0, next = base;
  for (std::uint64_t k = 0; k < 5; ++k) {
    lows += gaps[k] & low_mask(parameter);
    zeros += gaps[k] >> parameter;
    const std::uint64_t position = next + gaps[k];
    EXPECT_EQ(position_at(lows, zeros, parameter, k), position);
    next = position + 1;
  }
}

}  // namespace
}  // namespace peel::detail
