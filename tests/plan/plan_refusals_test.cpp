// What Plan::make refuses. Each refusal has a code for programs and a sentence for people; what lies just inside the
// limit is accepted.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "peel/plan.h"
#include "refusal.h"

namespace peel::testing {
namespace {

struct Refusal {
  const char* name;
  const char* sentence;  // a part of it
  std::function<void(PlanOptions&)> spoil;
};

PlanOptions good() { return {.elements = 10'000, .expected_items = 100, .workers = 4}; }

const Refusal kRefusals[] = {
    {"elements past 2^43", "2^43", [](PlanOptions& o) { o.elements = (std::uint64_t{1} << 43) + 1; }},
    {"all elements there could be", "2^43", [](PlanOptions& o) { o.elements = ~std::uint64_t{0}; }},
    {"grain 0", "power of two", [](PlanOptions& o) { o.grain = 0; }},
    {"grain 3", "power of two", [](PlanOptions& o) { o.grain = 3; }},
    {"grain 2048", "1024", [](PlanOptions& o) { o.grain = 2048; }},
    {"grain 2^31", "1024", [](PlanOptions& o) { o.grain = 1u << 31; }},
    {"phase at the grain", "phase", [](PlanOptions& o) { o.grain = o.phase = 64; }},
    {"phase without a grain", "phase", [](PlanOptions& o) { o.phase = 1; }},
    {"no workers", "worker", [](PlanOptions& o) { o.workers = 0; }},
    {"2^31 - 1 workers", "2^31", [](PlanOptions& o) { o.workers = 0x7FFFFFFFu; }},
    {"2^32 - 1 workers", "2^31", [](PlanOptions& o) { o.workers = 0xFFFFFFFFu; }},
    {"unknown type", "type", [](PlanOptions& o) { o.type = static_cast<ElementType>(8); }},
    {"unknown codec", "codec", [](PlanOptions& o) { o.codec = static_cast<Codec>(2); }},
    {"unknown cells", "cell", [](PlanOptions& o) { o.cells = static_cast<CellType>(5); }},
    {"unknown index", "index", [](PlanOptions& o) { o.index = static_cast<Index>(4); }},
    {"headroom past a thousandfold", "headroom", [](PlanOptions& o) { o.headroom_permille = 1'000'001; }},
    {"a fixed payload of packed", "payload", [](PlanOptions& o) { o.payload_bytes = 4096; }},
    {"a sketch of native cells", "sketch",
     [](PlanOptions& o) {
       o.codec = Codec::sketch;
       o.cells = CellType::native;
     }},
    {"int64 in fixed32", "fixed64",
     [](PlanOptions& o) {
       o.type = ElementType::int64;
       o.cells = CellType::fixed32;
     }},
    {"int64 in float32", "fixed64",
     [](PlanOptions& o) {
       o.type = ElementType::int64;
       o.cells = CellType::float32;
     }},
    {"int8 in float32", "exact",
     [](PlanOptions& o) {
       o.type = ElementType::int8;
       o.cells = CellType::float32;
     }},
    {"a scale of native cells", "scale", [](PlanOptions& o) { o.scale = 1; }},
    {"a scale of float32 cells", "scale",
     [](PlanOptions& o) {
       o.cells = CellType::float32;
       o.scale = -1;
     }},
    {"a scale of integers", "scale",
     [](PlanOptions& o) {
       o.type = ElementType::int32;
       o.cells = CellType::fixed32;
       o.scale = 1;
     }},
    {"scale 901", "900",
     [](PlanOptions& o) {
       o.cells = CellType::fixed32;
       o.scale = 901;
     }},
    {"scale -901", "900",
     [](PlanOptions& o) {
       o.cells = CellType::fixed32;
       o.scale = -901;
     }},
    {"the smallest scale there is", "900",
     [](PlanOptions& o) {
       o.cells = CellType::fixed32;
       o.scale = std::numeric_limits<std::int32_t>::min();
     }},
};

TEST(PlanRefusals, HaveACodeAndASentence) {
  for (const Refusal& refusal : kRefusals) {
    SCOPED_TRACE(refusal.name);
    PlanOptions options = good();
    refusal.spoil(options);
    expect_refusal(ErrorCode::invalid_argument, refusal.sentence, [&] { (void)Plan::make(options); });
  }
}

const Refusal kLimits[] = {
    {"nothing spoilt", "", [](PlanOptions&) {}},
    {"2^43 elements", "", [](PlanOptions& o) { o.elements = std::uint64_t{1} << 43; }},
    {"2^43 elements in a sketch", "",
     [](PlanOptions& o) {
       o.elements = std::uint64_t{1} << 43;
       o.codec = Codec::sketch;
     }},
    {"grain 1024, last phase", "",
     [](PlanOptions& o) {
       o.grain = 1024;
       o.phase = 1023;
     }},
    {"2^31 - 2 workers", "", [](PlanOptions& o) { o.workers = 0x7FFFFFFEu; }},
    {"65,536 workers", "", [](PlanOptions& o) { o.workers = 65'536; }},
    {"more items than there are", "", [](PlanOptions& o) { o.expected_items = ~std::uint64_t{0}; }},
    {"a thousandfold of headroom", "", [](PlanOptions& o) { o.headroom_permille = 1'000'000; }},
    {"scale 900", "",
     [](PlanOptions& o) {
       o.cells = CellType::fixed64;
       o.scale = 900;
     }},
    {"scale -900", "",
     [](PlanOptions& o) {
       o.cells = CellType::fixed64;
       o.scale = -900;
     }},
};

TEST(PlanRefusals, StopAtTheLimit) {
  for (const Refusal& limit : kLimits) {
    SCOPED_TRACE(limit.name);
    PlanOptions options = good();
    limit.spoil(options);
    EXPECT_NO_THROW({
      const Plan plan = Plan::make(options);
      EXPECT_LE(plan.expected_items(), plan.items());
    });
  }
}

TEST(PlanRefusals, ASketchOfTooManyBlocksIsRefused) {
  expect_refusal(ErrorCode::invalid_argument, "blocks", [] {
    (void)Plan::make(
        {.elements = std::uint64_t{1} << 43, .expected_items = std::uint64_t{1} << 43, .codec = Codec::sketch});
  });
}

TEST(PlanChoices, AutomaticIsResolved) {
  const auto cells = [](Codec codec, ElementType type) {
    return Plan::make({.elements = 1000, .type = type, .expected_items = 10, .codec = codec}).cells();
  };
  EXPECT_EQ(cells(Codec::packed, ElementType::float32), CellType::native);
  EXPECT_EQ(cells(Codec::packed, ElementType::int8), CellType::native);
  EXPECT_EQ(cells(Codec::sketch, ElementType::float32), CellType::fixed32);
  EXPECT_EQ(cells(Codec::sketch, ElementType::bfloat16), CellType::fixed32);
  EXPECT_EQ(cells(Codec::sketch, ElementType::int16), CellType::fixed32);
  EXPECT_EQ(cells(Codec::sketch, ElementType::float64), CellType::fixed64);
  EXPECT_EQ(cells(Codec::sketch, ElementType::int64), CellType::fixed64);
}

TEST(PlanChoices, TheIndexIsTheSmallestAllowed) {
  const auto index = [](std::uint64_t items, bool bloom, bool list) {
    return Plan::make({.elements = 1 << 20, .expected_items = items, .allow_bloom = bloom, .allow_list = list}).index();
  };
  EXPECT_EQ(index(1 << 10, true, false), Index::bloom);
  EXPECT_EQ(index(1 << 10, false, false), Index::bitmap);
  EXPECT_EQ(index(1 << 10, true, true), Index::list);
  EXPECT_EQ(index(1 << 19, true, false), Index::bitmap);
  EXPECT_EQ(index(1 << 19, true, true), Index::bitmap);  // at one half nothing beats a bit a position
  EXPECT_EQ(index((1 << 20) - 100, true, true), Index::list);
}

TEST(PlanChoices, AutomaticIndexIsNeverLargerThanAnyOther) {
  for (const Codec codec : {Codec::packed, Codec::sketch}) {
    for (std::uint64_t items = 1; items < 1 << 18; items *= 3) {
      PlanOptions options{.elements = 1 << 18, .expected_items = items, .codec = codec, .allow_list = true};
      const std::uint64_t chosen = Plan::make(options).message_bytes();
      for (const Index index : {Index::bitmap, Index::bloom, Index::list}) {
        options.index = index;
        // A sketch is charged by the usual number of cells an item, a little off for few items.
        const std::uint64_t slack = codec == Codec::sketch ? chosen / 50 + 512 : 64;
        EXPECT_LE(chosen, Plan::make(options).message_bytes() + slack) << items << " items, " << name(index);
      }
    }
  }
}

TEST(PlanChoices, HeadroomMakesRoomButNotPastTheArray) {
  const auto expected = [](std::uint64_t items, std::uint32_t permille) {
    return Plan::make({.elements = 1000, .expected_items = items, .headroom_permille = permille}).expected_items();
  };
  EXPECT_EQ(expected(100, 0), 100u);
  EXPECT_EQ(expected(100, 50), 105u);
  EXPECT_EQ(expected(100, 1000), 200u);
  EXPECT_EQ(expected(900, 1'000'000), 1000u);
  EXPECT_EQ(expected(~std::uint64_t{0}, 1'000'000), 1000u);
}

TEST(PlanChoices, AFixedPayloadIsNotExceeded) {
  for (const std::uint64_t bytes : {12ull, 1000ull, 65'536ull, 1'000'003ull}) {
    for (const std::uint32_t grain : {1u, 16u}) {
      const Plan plan = Plan::make({.elements = 1 << 20,
                                    .expected_items = 1 << 16,
                                    .codec = Codec::sketch,
                                    .grain = grain,
                                    .payload_bytes = bytes});
      const std::uint64_t smallest = 3ull * grain * 4;
      EXPECT_LE(plan.payload_bytes(), std::max(bytes, smallest));
      EXPECT_GE(plan.payload_bytes() + 3ull * plan.blocks() * grain * 4, bytes);
    }
  }
}

}  // namespace
}  // namespace peel::testing
