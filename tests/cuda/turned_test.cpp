// Sketches that are peeled out of a turned bitmap, and made out of one where they have many blocks: in small arrays,
// with blocks as small as the chip takes them.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "cuda/checked_device.h"
#include "cuda/patterned_gradient.h"

namespace peel::testing {
namespace {

constexpr std::uint32_t kBlocks = 264;     // from here on sketches are made block by block, too
constexpr std::uint32_t kSubtable = 1626;  // permutations of 32 bits need so many cells

struct Shaped {
  std::uint32_t blocks = kBlocks;
  Index index = Index::bitmap;
  ElementType type = ElementType::float32;
};

// The plan for these options, but with a sketch of this shape: blocks and subtable are at 48 and 52 of a descriptor
// (docs/format.md).
Plan shaped_plan(const Patterned& what, std::uint64_t items, const Shaped& shaped) {
  const Plan plan = Plan::make({.elements = what.elements,
                                .type = shaped.type,
                                .expected_items = items,
                                .codec = Codec::sketch,
                                .cells = CellType::fixed32,
                                .index = shaped.index,
                                .seed = what.seed * 0x9E3779B97F4A7C15u,
                                .scale = is_integer(shaped.type) ? 0 : kUnitScale});
  std::vector<std::byte> descriptor = plan.serialise();
  std::memcpy(descriptor.data() + 48, &shaped.blocks, 4);
  std::memcpy(descriptor.data() + 52, &kSubtable, 4);
  return Plan::parse(descriptor);
}

Patterned full_of(double items_per_block, const Shaped& shaped, double density, Shape shape, std::uint64_t seed) {
  return {.type = shaped.type,
          .elements = static_cast<std::uint64_t>(items_per_block * shaped.blocks / density) + 5,
          .density = density,
          .shape = shape,
          .seed = seed};
}

constexpr double kItems = 3.0 * kSubtable / 1.42;

TEST(CudaTurned, OfEveryIndexShapeDensityAndAlignment) {
  SeededDraw draw(51);
  for (const std::uint32_t blocks : {1u, 3u, 97u, kBlocks, kBlocks + 61}) {
    if (small_scale() && blocks > 3) continue;
    for (const Index index : {Index::bitmap, Index::bloom, Index::list}) {
      for (const double density : {0.02, 0.12, 0.6}) {
        if (density < 0.1 && (blocks > 100 || small_scale())) continue;  // too many elements for the CPU's patience
        const Shaped shaped{.blocks = blocks, .index = index};
        // A filter adds items that nobody has.
        const double full = index == Index::bloom ? 0.8 * kItems : kItems;
        const Patterned what = full_of(full, shaped, density, draw.pick({Shape::uniform, Shape::rows}), draw.bits());
        const Elements x = patterned(what);
        const Plan plan = shaped_plan(what, count_items(x, what.type, 1, 0), shaped);
        ASSERT_EQ(plan.blocks(), blocks);
        CheckedDevice(plan, {.offset = static_cast<std::uint32_t>(draw.below(5))}).round_trip(x);
      }
    }
  }
}

TEST(CudaTurned, OfEveryTypeOnAndOffItsAlignment) {
  for (unsigned t = 0; t < 8; ++t) {
    const auto type = static_cast<ElementType>(t);
    if (type == ElementType::int64) continue;  // fixed32 cannot hold it
    for (const std::uint32_t blocks : {2u, kBlocks}) {
      if (small_scale() && blocks > 2) continue;
      const Shaped shaped{.blocks = blocks, .type = type};
      const Patterned what = full_of(kItems / 4, shaped, 0.3, Shape::uniform, 52);
      const Elements x = patterned(what);
      const Plan plan = shaped_plan(what, count_items(x, type, 1, 0), shaped);
      for (const std::uint32_t offset : {0u, 1u}) CheckedDevice(plan, {.offset = offset}).round_trip(x);
    }
  }
}

// Blocks that peel in part, not at all, or are not tried: CheckedDevice compares what is lost, listed and estimated.
TEST(CudaTurned, OverfullBlocksLoseWhatTheyLoseOnACpu) {
  bool partly = false;
  for (const double fullness : {0.82, 0.9, 1.3}) {  // items for each cell: some blocks peel, few, none
    for (const std::uint32_t blocks : {2u, kBlocks}) {
      if (small_scale() && blocks > 2) continue;
      for (const std::uint32_t offset : {0u, 3u}) {
        const Shaped shaped{.blocks = blocks};
        const Patterned what = full_of(fullness * 3 * kSubtable, shaped, 0.4, Shape::uniform, 53);
        const Elements x = patterned(what);
        const Plan plan = shaped_plan(what, count_items(x, what.type, 1, 0), shaped);
        Message message;
        encode(plan, x.view(), message);
        const Recovery cpu = CheckedDevice(plan, {.offset = offset}).decode(message);
        EXPECT_GT(cpu.lost, 0u);
        partly |= cpu.recovered != 0;
      }
    }
  }
  EXPECT_TRUE(partly) << "nothing was recovered, so this tests little";
}

// What both backends must refuse.
void expect_damaged(const Plan& plan, const Message& message, const char* what) {
  SCOPED_TRACE(what);
  CheckedDevice cpu(plan);
  EXPECT_THROW((void)cpu.decode_on_cpu(message, /*estimate=*/false), Error);
  DeviceCodec device(plan, plan.items(), {});
  device.put(message);
  std::vector<std::uint64_t> lost;
  Elements out(plan.type(), plan.elements(), 0, Elements::kOld);
  EXPECT_EQ(device.decode(out, {}, lost).flags, cuda::kCorrupt);
  Sparse sparse;
  EXPECT_EQ(device.decode(sparse, {}, lost).flags, cuda::kCorrupt);
}

TEST(CudaTurned, DamageIsSeen) {
  const Shaped shaped{.blocks = small_scale() ? 2 : kBlocks};
  const Patterned what = full_of(kItems, shaped, 0.3, Shape::uniform, 54);
  const Elements x = patterned(what);
  const Plan plan = shaped_plan(what, count_items(x, what.type, 1, 0), shaped);
  Message message;
  encode(plan, x.view(), message);
  {
    Message damaged = message;
    damaged.payload_as<std::int32_t>()[damaged.payload.size() / 4 - 1] += 1;
    expect_damaged(plan, damaged, "a cell of the last block");
  }
  {
    Message damaged = message;
    std::uint64_t w = 0;
    while (damaged.index[w] == 0) ++w;
    damaged.index[w] &= damaged.index[w] - 1;
    expect_damaged(plan, damaged, "an item that is not named");
  }
  {
    Message damaged = message;
    damaged.index[plan.items() / 64] |= std::uint64_t{1} << 63;
    expect_damaged(plan, damaged, "a bit past the end");
  }
  {
    Message damaged = message;
    damaged.index[damaged.index.size() - 1] = 8;
    expect_damaged(plan, damaged, "an unknown flag");
  }
}

// A block that is not tried loses its items, but its cells without items must be zero all the same.
TEST(CudaTurned, DamageOfOverfullBlocksIsSeen) {
  for (const std::uint32_t grain : {1u, 4u}) {
    // Ten times more items than expected, all at the front: cells without items are left where they are few.
    const Patterned what{.elements = 16'000, .density = 1.0, .seed = 55};
    const Elements x = patterned(what);
    const Plan plan = Plan::make({.elements = what.elements,
                                  .expected_items = 1,
                                  .codec = Codec::sketch,
                                  .grain = grain,
                                  .index = Index::bitmap,
                                  .scale = kUnitScale,
                                  .payload_bytes = 1200 * 4 * grain});
    Elements some(what.type, what.elements, 0, std::byte{0});
    std::memcpy(some.data(), x.data(), 1300 * grain * 4);
    Message message;
    encode(plan, some.view(), message);
    const Recovery cpu = CheckedDevice(plan).decode(message);
    ASSERT_EQ(cpu.recovered, 0u) << plan.describe();
    std::size_t c = 0;
    while (c < message.payload.size() / 4 && message.payload_as<std::int32_t>()[c] != 0) ++c;
    ASSERT_LT(c, message.payload.size() / 4) << "no cell is without items, so this tests nothing";
    message.payload_as<std::int32_t>()[c] = 7;
    expect_damaged(plan, message, grain == 1 ? "single elements" : "vectors");
  }
}

// A union that outgrew the room is refused, whatever way it would have been decoded.
TEST(CudaTurned, MoreItemsThanRoomAreRefused) {
  for (const std::uint32_t subtable : {20u, kSubtable}) {  // peeled as vectors, and turned
    const Patterned what{.elements = 40'000, .density = 1.0, .seed = 56};
    const Elements x = patterned(what);
    const Plan plan = Plan::make({.elements = what.elements,
                                  .expected_items = subtable,
                                  .codec = Codec::sketch,
                                  .index = Index::bitmap,
                                  .scale = kUnitScale,
                                  .payload_bytes = std::uint64_t{12} * subtable});
    Message message;
    encode(plan, x.view(), message);
    std::vector<std::uint64_t> lost;
    Elements out(what.type, what.elements, 0, Elements::kOld);
    DeviceCodec small(plan, cuda::room_for(plan), {});
    small.put(message);
    const cuda::Status refused = small.decode(out, {}, lost);
    EXPECT_EQ(refused.flags, cuda::kNoRoom) << plan.describe();
    EXPECT_EQ(refused.items, what.elements);
    DeviceCodec large(plan, what.elements, {});
    large.put(message);
    const cuda::Status status = large.decode(out, {}, lost);
    EXPECT_EQ(status.flags, 0u) << plan.describe();
    EXPECT_EQ(status.lost, what.elements);
  }
}

}  // namespace
}  // namespace peel::testing
