#include "plan/sizing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "peel/plan.h"
#include "plan/mapping.h"

namespace peel::detail {
namespace {

double entropy(double positions, double items) {
  const double p = items / positions;
  return p <= 0 || p >= 1 ? 0 : positions * (-p * std::log2(p) - (1 - p) * std::log2(1 - p));
}

TEST(Entropy, IsTheFormula) {
  for (const std::uint64_t positions : {2ull, 3ull, 100ull, 4096ull, 1ull << 26, 1ull << 43}) {
    for (const std::uint64_t share : {2ull, 3ull, 10ull, 100ull, 10'000ull}) {
      const std::uint64_t items = positions / share;
      const double exact = entropy(static_cast<double>(positions), static_cast<double>(items));
      EXPECT_NEAR(static_cast<double>(entropy_bits(positions, items)), exact, 1 + exact * 1e-6)
          << items << " of " << positions;
    }
  }
}

TEST(Entropy, OfNothingAndOfEverythingIsNothing) {
  EXPECT_EQ(entropy_bits(0, 0), 0u);
  EXPECT_EQ(entropy_bits(1000, 0), 0u);
  EXPECT_EQ(entropy_bits(1000, 1000), 0u);
  EXPECT_EQ(entropy_bits(1000, 1001), 0u);  // more than there are: nothing is left to say
  EXPECT_EQ(entropy_bits(2, 1), 2u);
}

TEST(LowerBound, OfOnePercentIsFortyBitsAnItem) {
  const std::uint64_t elements = std::uint64_t{1} << 26;
  const std::uint64_t items = elements / 100;
  const double bits = 8.0 * static_cast<double>(lower_bound_bytes(elements, items, 32)) / static_cast<double>(items);
  EXPECT_NEAR(bits, 40.08, 0.005);  // 32 for the value, H(0.01) / 0.01 = 8.08 for its place
}

TEST(LowerBound, KnownCorners) {
  EXPECT_EQ(lower_bound_bytes(0, 0, 32), 0u);
  EXPECT_EQ(lower_bound_bytes(1000, 0, 32), 0u);
  EXPECT_EQ(lower_bound_bytes(1000, 1000, 32), 4000u);      // all dense: the array itself
  EXPECT_EQ(lower_bound_bytes(1000, 5000, 32), 4000u);      // and never more
  EXPECT_EQ(lower_bound_bytes(1024, 512, 8), 512u + 128u);  // half: one bit a position
}

TEST(LowerBound, GrowsWithTheItemsWhileTheyAreFew) {
  std::uint64_t last = 0;
  for (std::uint64_t items = 1; items <= 1 << 20; items *= 2) {
    const std::uint64_t now = lower_bound_bytes(1 << 22, items, 32);
    EXPECT_GT(now, last);
    last = now;
  }
}

// More blocks mean more chances that one of them is the unlucky one, so the slack grows a little with the message.
TEST(SketchSize, TakesAtMost142CellsPer100ItemsFrom100000On) {
  const struct {
    std::uint64_t items;
    double most;
  } sizes[] = {{100'000, 1.42}, {131'072, 1.42}, {1'342'177, 1.42}, {5'000'000, 1.43}, {100'000'000, 1.45}};
  for (const auto& [items, most] : sizes) {
    for (const std::uint64_t sparsity : {3ull, 10ull, 100ull, 1000ull}) {
      for (const std::uint32_t group_log2 : {0u, 1u, 2u, 3u}) {
        const SketchSize size = size_sketch(items * sparsity, items, group_log2);
        const double cells = 3.0 * size.blocks * size.subtable / static_cast<double>(items);
        EXPECT_LE(cells, most) << items << " items, one of " << sparsity << ", group " << group_log2;
        EXPECT_GE(cells, 1.2218) << "below the threshold nothing peels";
      }
    }
  }
}

TEST(SketchSize, BlocksStayOnChip) {
  for (std::uint64_t items = 1; items < 100'000'000; items = items * 3 + 1) {
    const SketchSize size = size_sketch(items * 20, items, 3);
    EXPECT_GE(size.blocks, 1u);
    EXPECT_LE(size.subtable, kMaxSubtable);
    EXPECT_LE(3 * size.subtable, 20'000u) << items;  // 12 thousand items and their slack
  }
}

// More items never get fewer cells, as long as the number of blocks stays; where it steps up, slack may be saved.
TEST(SketchSize, IsMonotoneWithinOneNumberOfBlocks) {
  for (const std::uint32_t group_log2 : {0u, 3u}) {
    SketchSize last = size_sketch(1 << 24, 1, group_log2);
    for (std::uint64_t items = 2; items < 200'000; items += 1 + items / 64) {
      const SketchSize now = size_sketch(1 << 24, items, group_log2);
      EXPECT_GE(now.blocks, last.blocks) << items;
      if (now.blocks == last.blocks) {
        EXPECT_GE(now.subtable, last.subtable) << items;
      }
      last = now;
    }
  }
}

TEST(SketchSize, FewItemsAndNoneStillHaveCells) {
  for (const std::uint64_t positions : {0ull, 1ull, 2ull, 1000ull, 1ull << 40}) {
    for (const std::uint64_t items : {0ull, 1ull, 2ull, 10ull}) {
      const SketchSize size = size_sketch(positions, items, 3);
      EXPECT_GE(size.blocks, 1u);
      EXPECT_GE(size.subtable, 1u);
      EXPECT_LE(local_ids(positions, size.blocks, 3), std::uint64_t{1} << 32) << "a local id has 32 bits";
    }
  }
}

TEST(SketchSize, FitsWhatItIsGiven) {
  for (std::uint64_t cells = 3; cells < 10'000'000; cells = cells * 2 + 1) {
    const SketchSize size = fit_sketch(1 << 24, cells);
    const std::uint64_t taken = 3ull * size.blocks * size.subtable;
    EXPECT_LE(taken, cells);
    EXPECT_GE(taken + 3ull * size.blocks, cells) << "at most one cell of each subtable is wasted";
  }
  EXPECT_EQ(fit_sketch(1000, 0).subtable, 1u);
  EXPECT_EQ(fit_sketch(1000, 0).blocks, 1u);
}

TEST(PermutationBits, AreOneToOneWhereTriplesAllowIt) {
  EXPECT_EQ(permutation_bits(1000, 10), 32u);  // 10^3 = 1000 triples hold 2^9 ids only
  EXPECT_EQ(permutation_bits(512, 10), 9u);
  EXPECT_EQ(permutation_bits(513, 10), 32u);
  EXPECT_EQ(permutation_bits(1, 2), 32u);  // 2^3 triples: fewer than the permutation's smallest width
  EXPECT_EQ(permutation_bits(16, 3), 4u);  // 27 triples
  EXPECT_EQ(permutation_bits(1 << 30, 2000), 32u);
  EXPECT_EQ(permutation_bits(1 << 30, 1024), 30u);
}

TEST(BloomSize, HalfOfItsBitsAreSet) {
  for (const std::uint64_t items : {1000ull, 100'000ull, 5'000'000ull}) {
    const BloomSize size = size_bloom(items * 1000, items, 32, Codec::packed);
    const double bits = static_cast<double>(size.rows) * kBloomRowItems;
    EXPECT_NEAR(bits / static_cast<double>(items), size.hashes / std::log(2), 0.6) << items;
  }
}

// At 0.1% and 32 bits a value, the best filter has about log2(1000 x 32 x ln 2 ...) = 14 probes; nothing else is near.
TEST(BloomSize, IsTheBestOfAllNumbersOfHashes) {
  for (const std::uint64_t sparsity : {20ull, 100ull, 1000ull, 100'000ull}) {
    const std::uint64_t items = 100'000;
    const std::uint64_t positions = items * sparsity;
    const BloomSize size = size_bloom(positions, items, 32, Codec::packed);
    double best = 1e300;
    for (int k = 1; k <= 24; ++k) {
      const double total =
          k / std::log(2) * static_cast<double>(items) +
          32 * (static_cast<double>(items) + static_cast<double>(positions - items) * std::ldexp(1, -k));
      best = std::min(best, total);
    }
    EXPECT_NEAR(static_cast<double>(size.total_bits), best, best * 0.001) << "one of " << sparsity;
  }
}

// The payload of a sketch has its size before anybody knows the false positives: there is room for clusters of them,
// which costs little where there are many items.
TEST(BloomSize, OfASketchHasRoomForClusters) {
  for (const std::uint64_t items : {600ull, 1000ull, 10'000ull, 100'000ull, 1'000'000ull}) {
    for (const std::uint64_t sparsity : {30ull, 1000ull, 100'000ull}) {
      const std::uint64_t positions = items * sparsity;
      const BloomSize packed = size_bloom(positions, items, 44, Codec::packed);
      const BloomSize sketch = size_bloom(positions, items, 44, Codec::sketch);
      const double mean = std::ldexp(static_cast<double>(positions - items), -static_cast<int>(sketch.hashes));
      const double room = static_cast<double>(sketch.candidates - items);
      EXPECT_GE(room, mean + 2.5 * std::sqrt(mean * (mean < 100 ? 1 : kBloomRowItems))) << items << " of " << positions;
      const double more = static_cast<double>(sketch.total_bits) / static_cast<double>(packed.total_bits);
      EXPECT_LE(more, items < 10'000 ? 1.35 : items < 100'000 ? 1.15 : 1.05) << items << " of " << positions;
    }
  }
}

TEST(BloomSize, OfASketchIsRightAtTheEnds) {
  for (const std::uint64_t positions : {0ull, 1ull, 5ull, 512ull, 1ull << 43}) {
    for (const std::uint64_t items : {std::uint64_t{0}, std::uint64_t{1}, positions / 2, positions}) {
      const BloomSize size = size_bloom(positions, items, 44, Codec::sketch);
      EXPECT_GE(size.hashes, 1u);
      EXPECT_GE(size.rows, size.hashes);
      EXPECT_LE(size.candidates, positions);
      EXPECT_GE(size.candidates, std::min(items, positions));
    }
  }
}

TEST(BloomSize, OfNothingIsSmall) {
  for (const std::uint64_t positions : {0ull, 1ull, 5ull}) {
    const BloomSize size = size_bloom(positions, 0, 32, Codec::packed);
    EXPECT_GE(size.hashes, 1u);
    EXPECT_LE(size.rows, 24u);
    EXPECT_LE(size.candidates, positions) << positions << " positions";
  }
}

TEST(ListSize, IsCloseAboveTheEntropy) {
  for (const std::uint64_t items : {10'000ull, 1'000'000ull}) {
    const std::uint64_t entropy_of = entropy_bits(items * 50, items);
    EXPECT_GE(expected_list_bits(items * 50, items), entropy_of);
    EXPECT_LE(static_cast<double>(expected_list_bits(items * 50, items)), static_cast<double>(entropy_of) * 1.1 + 512);
  }
}

}  // namespace
}  // namespace peel::detail
