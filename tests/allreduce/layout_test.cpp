// How arrays are cut into chunks.
#include "allreduce/layout.h"

#include <gtest/gtest.h>

namespace peel::detail {
namespace {

void expect_cover(const Layout& layout, std::uint64_t elements, std::uint64_t unit) {
  std::uint64_t end = 0;
  for (const Share& chunk : layout.chunks) {
    EXPECT_EQ(chunk.begin, end);
    EXPECT_LT(chunk.begin, chunk.end);
    EXPECT_EQ(chunk.begin % unit, 0u);
    end = chunk.end;
  }
  EXPECT_EQ(end, elements);
}

// Boundaries are multiples of the longest grain, so that any grain and phase means the same in every chunk.
TEST(Layout, DenseChunksCoverTheArray) {
  for (int t = 0; t < 8; ++t) {
    const auto type = static_cast<ElementType>(t);
    for (const std::uint64_t elements :
         {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1024}, std::uint64_t{1025}, std::uint64_t{1} << 20,
          (std::uint64_t{1} << 24) + 7, std::uint64_t{1} << 36}) {
      for (const std::uint64_t chunk_bytes : {0u, 1u, 5000u}) {
        if (chunk_bytes != 0 && elements > 1 << 22) continue;
        expect_cover(cut_dense({.chunk_bytes = chunk_bytes}, elements, type), elements, 1024);
      }
    }
  }
}

TEST(Layout, ChunksAreNeitherTinyNorMany) {
  EXPECT_EQ(cut_dense({}, 1000, ElementType::float32).chunks.size(), 1u);
  const Layout large = cut_dense({}, std::uint64_t{1} << 30, ElementType::float32);
  EXPECT_GE(large.chunks.size(), 8u) << "a fraction of the array at a time";
  EXPECT_LE(large.chunks.size(), 64u);
  for (const Share& chunk : cut_dense({}, 3 << 20, ElementType::float32).chunks) {
    if (chunk.end != 3 << 20) {
      EXPECT_GE((chunk.end - chunk.begin) * 4, 1u << 20);
    }
  }
}

TEST(Layout, SparseChunksHoldWholeItems) {
  for (std::uint32_t grain = 1; grain <= 1024; grain *= 2) {
    for (const std::uint64_t elements : {std::uint64_t{1}, std::uint64_t{100'001}, std::uint64_t{1} << 33}) {
      for (const std::uint64_t chunk_bytes : {0u, 1u}) {
        const Layout layout = cut_sparse({.grain = grain, .elements = elements, .chunk_bytes = chunk_bytes});
        expect_cover(layout, elements, grain);
        EXPECT_LE(layout.chunks.size(), 8u);
      }
    }
  }
}

TEST(Layout, ChunksOfAReduceScatterCoverAShare) {
  for (const unsigned workers : {2u, 3u, 64u}) {
    for (const std::uint64_t elements : {1u, 100u, 1'000'003u}) {
      expect_cover(cut_shares({.chunk_bytes = 8192}, elements, ElementType::float32, workers),
                   (elements + workers - 1) / workers, 1024);
    }
  }
}

}  // namespace
}  // namespace peel::detail
