// Arrays of no, one and odd numbers of elements, all zero and all dense, at every grain, type, codec and index.
#include <gtest/gtest.h>

#include <cstdint>

#include "codec/checked_codec.h"
#include "codec/exact_gradient.h"

namespace peel::testing {
namespace {

enum class Fill { none, all, first, last };

ExactGradient filled(std::uint64_t elements, Fill fill) {
  ExactGradient x;
  for (std::uint64_t e = 0; e < elements; ++e) {
    const bool set = fill == Fill::all || (fill == Fill::first && e == 0) || (fill == Fill::last && e + 1 == elements);
    if (set) x.set(e, static_cast<Units>(e % 30) + 1);
  }
  return x;
}

void expect_round_trips(const PlanOptions& base) {
  for (const Index index : {Index::automatic, Index::bitmap, Index::bloom, Index::list}) {
    for (const Fill fill : {Fill::none, Fill::all, Fill::first, Fill::last}) {
      PlanOptions options = base;
      options.index = index;
      const ExactGradient x = filled(options.elements, fill);
      const std::uint32_t lead = (options.grain - options.phase) % options.grain;
      options.expected_items = fill == Fill::all    ? (options.elements + lead + options.grain - 1) / options.grain
                               : fill == Fill::none ? 0
                                                    : 1;
      CheckedCodec codec(options, {.threads = 2, .offset = 3});
      auto message = codec.encode(x);
      codec.merge(message, codec.encode(x));
      const Recovery r = codec.decode(message);
      if (fill == Fill::none || options.elements == 0) {
        EXPECT_EQ(r.items, 0u) << codec.plan().describe();
      } else {
        EXPECT_GE(r.items, 1u) << codec.plan().describe();
      }
    }
  }
}

TEST(OddShapes, OfEveryLengthGrainAndPhase) {
  for (const Codec codec : {Codec::packed, Codec::sketch}) {
    for (const std::uint64_t elements : {0, 1, 2, 3, 7, 31, 63, 64, 65, 127, 511, 513, 1023, 1025, 2049, 4099}) {
      for (const std::uint32_t grain : {1u, 2u, 4u, 8u, 16u, 64u, 256u, 1024u}) {
        for (const std::uint32_t phase : {0u, 1u, grain / 2, grain - 1}) {
          if (phase >= grain) continue;
          expect_round_trips({.elements = elements,
                              .workers = 2,
                              .codec = codec,
                              .grain = grain,
                              .phase = phase,
                              .scale = codec == Codec::sketch ? kUnitScale : 0});
        }
      }
    }
  }
}

TEST(OddShapes, OfEveryTypeAndCell) {
  for (unsigned t = 0; t < 8; ++t) {
    const auto type = static_cast<ElementType>(t);
    for (const CellType cells : {CellType::native, CellType::fixed32, CellType::fixed64, CellType::float32}) {
      for (const Codec codec : {Codec::packed, Codec::sketch}) {
        if (codec == Codec::sketch && cells == CellType::native) continue;
        if (is_integer(type) && cells == CellType::float32) continue;
        if (type == ElementType::int64 && cells == CellType::fixed32) continue;
        const bool scaled = !is_integer(type) && (cells == CellType::fixed32 || cells == CellType::fixed64);
        for (const std::uint64_t elements : {0, 1, 77, 700}) {
          for (const std::uint32_t grain : {1u, 8u, 128u}) {
            expect_round_trips({.elements = elements,
                                .type = type,
                                .workers = 2,
                                .codec = codec,
                                .cells = cells,
                                .grain = grain,
                                .phase = grain / 3,
                                .scale = scaled ? kUnitScale : 0});
          }
        }
      }
    }
  }
}

TEST(OddShapes, NothingIsSpentOnNothing) {
  const Plan plan = Plan::make({.elements = 0, .codec = Codec::sketch});
  EXPECT_EQ(plan.items(), 0u);
  EXPECT_EQ(plan.lower_bound_bytes(), 0u);
  Message message(plan);
  encode(plan, ConstDense(nullptr, 0, ElementType::float32), message);
  EXPECT_EQ(decode(plan, message, Dense(nullptr, 0, ElementType::float32)).items, 0u);
  Sparse sparse;
  EXPECT_EQ(decode(plan, message, sparse).items, 0u);
  EXPECT_TRUE(sparse.items.empty());
}

// Items whose values are all zero may be named in a sparse gradient; they are no items.
TEST(OddShapes, SparseItemsOfZerosAreNoItems) {
  for (const Backend backend : available_backends()) {
    for (const Index index : {Index::bitmap, Index::list}) {
      const Plan plan = Plan::make({.elements = 100, .grain = 4, .phase = 2, .index = index});
      const std::vector<std::uint64_t> items = {0, 3, 4, 25};
      std::vector<float> values(16, 0.0f);
      values[0] = values[1] = 9.0f;  // outside of the array: item 0 starts two elements before it
      values[5] = 5.0f;
      values[8] = -0.0f;
      values[15] = 9.0f;  // outside again: the array ends after two lanes of item 25
      Message message;
      encode(plan, ConstSparse(items, values.data(), ElementType::float32), message, {.backend = backend});
      std::vector<float> out(100, 1.0f), expected(100);
      expected[2 + 2 * 4 + 1] = 5.0f;
      EXPECT_EQ(decode(plan, message, out, {.execution = {.backend = backend}}).items, 1u);
      EXPECT_EQ(out, expected);
    }
  }
}

}  // namespace
}  // namespace peel::testing
