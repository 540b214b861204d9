// What a plan says of itself: describe(), which a person reads when two workers disagree, and the type that an
// aggregator adds.
#include <gtest/gtest.h>

#include <string>

#include "peel/plan.h"

namespace peel::testing {
namespace {

TEST(PlanDescription, OfASketch) {
  const Plan plan = Plan::make({.elements = 1'000'000,
                                .expected_items = 1000,
                                .workers = 4,
                                .codec = Codec::sketch,
                                .grain = 16,
                                .phase = 5,
                                .index = Index::bitmap,
                                .scale = 20});
  const std::string text = plan.describe();
  EXPECT_EQ(
      text.substr(0, text.find('\n')),
      "sketch of 1000000 float32, 4 workers, fixed32 cells at scale 20, grain 16 from element 5, expecting 1000 of "
      "62501 items");
  EXPECT_NE(text.find("index: bitmap, " + std::to_string(plan.index_bytes()) + " bytes"), std::string::npos) << text;
  EXPECT_NE(
      text.find(std::to_string(plan.blocks()) + " blocks of " + std::to_string(plan.cells_per_block()) + " cells"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("% of dense"), std::string::npos) << text;
  EXPECT_NE(text.find("of the lower bound"), std::string::npos) << text;
}

TEST(PlanDescription, OfPackedSaysNothingOfBlocksOrScale) {
  const std::string text =
      Plan::make({.elements = 100, .type = ElementType::int8, .expected_items = 7, .index = Index::bitmap}).describe();
  EXPECT_EQ(text,
            "packed of 100 int8, 1 worker, native cells, grain 1, expecting 7 of 100 items\n"
            "index: bitmap, 24 bytes\n"
            "payload: 7 bytes\n"
            "message: 31.00% of dense, 258.33% of the lower bound");
}

TEST(PlanDescription, OfABloomFilterNamesItsShape) {
  const Plan plan = Plan::make({.elements = 100'000, .expected_items = 100, .index = Index::bloom});
  const std::string text = plan.describe();
  EXPECT_NE(text.find("index: bloom of "), std::string::npos) << text;
  EXPECT_NE(text.find(" hashes, "), std::string::npos) << text;
}

TEST(PayloadType, IsThatOfACounter) {
  const auto payload_type = [](ElementType type, CellType cells) {
    return Plan::make({.elements = 100, .type = type, .cells = cells}).payload_type();
  };
  EXPECT_EQ(payload_type(ElementType::float64, CellType::fixed32), ElementType::int32);
  EXPECT_EQ(payload_type(ElementType::float16, CellType::fixed64), ElementType::int64);
  EXPECT_EQ(payload_type(ElementType::float64, CellType::float32), ElementType::float32);
  EXPECT_EQ(payload_type(ElementType::bfloat16, CellType::native), ElementType::bfloat16);
  EXPECT_EQ(payload_type(ElementType::int8, CellType::native), ElementType::int8);
}

TEST(PlanDescription, OfNothingDividesByNothing) {
  const std::string text = Plan::make({.elements = 0}).describe();
  EXPECT_NE(text.find("message: - of dense, - of the lower bound"), std::string::npos) << text;
}

}  // namespace
}  // namespace peel::testing
