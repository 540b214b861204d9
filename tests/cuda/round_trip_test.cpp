// One worker's gradient to a message and back, of every length, grain, phase, type, cell, index, density and shape: the
// same bits as the CPU's from both views and into both.
#include <gtest/gtest.h>

#include <initializer_list>
#include <vector>

#include "cuda/checked_device.h"
#include "cuda/patterned_gradient.h"

namespace peel::testing {
namespace {

constexpr Codec kCodecs[] = {Codec::packed, Codec::sketch};
constexpr Index kIndexes[] = {Index::bitmap, Index::bloom, Index::list};

bool is_fixed(CellType cells) { return cells == CellType::fixed32 || cells == CellType::fixed64; }

// Exact scales where there are any.
PlanOptions options_of(const Patterned& what, Codec codec, CellType cells, Index index, std::uint64_t items) {
  const bool fixed = is_fixed(cells) || (codec == Codec::sketch && cells == CellType::automatic);
  return {.elements = what.elements,
          .type = what.type,
          .expected_items = items,
          .codec = codec,
          .cells = cells,
          .index = index,
          .seed = what.seed * 0x9E3779B97F4A7C15u,
          .scale = fixed && !is_integer(what.type) ? kUnitScale : 0};
}

void expect_round_trip(const Elements& x, PlanOptions options, std::uint32_t grain, std::uint32_t phase,
                       std::uint32_t offset) {
  options.grain = grain;
  options.phase = phase;
  options.expected_items = count_items(x, options.type, grain, phase);
  CheckedDevice(Plan::make(options), {.offset = offset}).round_trip(x);
}

TEST(CudaRoundTrip, OfEveryLengthGrainAndPhase) {
  SeededDraw draw(1);
  for (const std::uint64_t elements : {0, 1, 2, 31, 32, 33, 1023, 1025, 8191, 8192, 8193}) {
    for (std::uint32_t grain = 1; grain <= 1024; grain *= 2) {
      if (small_scale() && !draw.one_in(12)) continue;
      const Patterned what{.elements = elements,
                           .density = draw.pick({0.01, 0.1, 0.5, 1.0}),
                           .shape = draw.pick({Shape::uniform, Shape::runs, Shape::rows}),
                           .seed = draw.bits()};
      const Elements x = patterned(what);
      const auto phase = static_cast<std::uint32_t>(draw.one_in(3) ? 0 : draw.below(grain));
      const auto offset = static_cast<std::uint32_t>(draw.below(5));
      for (const Codec codec : kCodecs) {
        for (const Index index : kIndexes) {
          expect_round_trip(x, options_of(what, codec, CellType::automatic, index, 0), grain, phase, offset);
        }
      }
    }
  }
}

std::vector<CellType> cells_for(ElementType type, Codec codec) {
  std::vector<CellType> cells;
  if (codec == Codec::packed) cells.push_back(CellType::native);
  if (type != ElementType::int64) cells.push_back(CellType::fixed32);
  cells.push_back(CellType::fixed64);
  if (!is_integer(type)) cells.push_back(CellType::float32);
  return cells;
}

TEST(CudaRoundTrip, OfEveryTypeAndCell) {
  SeededDraw draw(2);
  for (unsigned t = 0; t < 8; ++t) {
    for (const Codec codec : kCodecs) {
      for (const CellType cells : cells_for(static_cast<ElementType>(t), codec)) {
        for (const std::uint64_t elements : {33u, 8193u, 100'003u}) {
          if (small_scale() && elements > 10'000) continue;
          const Patterned what{.type = static_cast<ElementType>(t),
                               .elements = elements,
                               .density = draw.pick({0.01, 0.1, 0.5, 1.0}),
                               .shape = draw.pick({Shape::uniform, Shape::runs, Shape::rows}),
                               .seed = draw.bits(),
                               .most = cells == CellType::float32 ? 31 : 0};
          const Elements x = patterned(what);
          for (const std::uint32_t grain : {1u, 2u, 8u, 64u}) {
            if (small_scale() && !draw.one_in(8)) continue;
            const auto phase = static_cast<std::uint32_t>(draw.below(grain));
            const auto offset = static_cast<std::uint32_t>(draw.below(5));
            for (const Index index : kIndexes) {
              expect_round_trip(x, options_of(what, codec, cells, index, 0), grain, phase, offset);
            }
          }
        }
      }
    }
  }
}

void expect_round_trips_of(const Patterned& what, std::initializer_list<std::uint32_t> grains) {
  const Elements x = patterned(what);
  for (const std::uint32_t grain : grains) {
    for (const Codec codec : kCodecs) {
      for (const Index index : kIndexes) {
        // Long lists take the CPU more time than all the rest.
        if (index == Index::list && what.elements > 1'000'000 && what.shape == Shape::runs) continue;
        const std::uint32_t phase = what.shape == Shape::rows ? 0 : grain / 3;
        expect_round_trip(x, options_of(what, codec, CellType::automatic, index, 0), grain, phase, grain % 3);
      }
    }
  }
}

TEST(CudaRoundTrip, OfEveryDensityAndShape) {
  for (const std::uint64_t elements : {scaled(100'003, 20'011), (std::uint64_t{1} << 20) + 7}) {
    if (small_scale() && elements > 1'000'000) continue;
    for (const double density : {0.0, 1e-4, 0.01, 0.1, 0.5, 1.0}) {
      if (small_scale() && (density == 0.5 || density == 1e-4)) continue;
      for (const Shape shape : {Shape::uniform, Shape::runs, Shape::rows}) {
        const Patterned what{.elements = elements, .density = density, .shape = shape, .seed = 3};
        if (small_scale()) {
          expect_round_trips_of(what, {1});
        } else if (elements > 1'000'000) {
          expect_round_trips_of(what, {1, 64});
        } else {
          expect_round_trips_of(what, {1, 4, 64});
        }
      }
    }
  }
}

TEST(CudaRoundTrip, OfFourMillionElements) {
  if (small_scale()) GTEST_SKIP() << "too many for a sanitizer";
  const std::uint64_t elements = std::uint64_t{1} << 22;
  for (const ElementType type : {ElementType::float32, ElementType::bfloat16}) {
    for (const double density : {0.01, 0.5}) {
      expect_round_trips_of({.type = type, .elements = elements, .density = density, .seed = 4}, {1});
    }
    expect_round_trips_of({.type = type, .elements = elements, .density = 0.035, .shape = Shape::rows}, {64, 1024});
  }
}

// Memory that is just long enough in every buffer but the index and the payload, which may be longer.
TEST(CudaRoundTrip, MessagesMayLieInMoreRoomThanTheyTake) {
  const Patterned what{.elements = 20'011, .density = 0.05, .seed = 5};
  const Elements x = patterned(what);
  for (const Codec codec : kCodecs) {
    for (const Index index : kIndexes) {
      const std::uint64_t items = count_items(x, what.type, 1, 0);
      const Plan plan = Plan::make(options_of(what, codec, CellType::automatic, index, items));
      Message message;
      encode(plan, x.view(), message);
      CheckedDevice cpu(plan);
      const CpuDecoded expected = cpu.decode_on_cpu(message, /*estimate=*/false);
      DeviceCodec device(plan, expected.recovery.items + 1000, {});
      for (const std::size_t slack : {1u, 2u, 100u}) {
        if (index != Index::list && slack != 2) continue;
        device.put(message, slack);
        Elements out(what.type, what.elements, 0, Elements::kOld);
        std::vector<std::uint64_t> lost;
        const cuda::Status status = device.decode(out, {}, lost);
        EXPECT_EQ(status.flags, 0u) << plan.describe();
        EXPECT_EQ(status.items, expected.recovery.items) << plan.describe();
        EXPECT_EQ(std::memcmp(out.data(), expected.dense.data(), plan.dense_bytes()), 0) << plan.describe();
      }
    }
  }
}

// The room a message takes when nobody says how many items there will be is enough for as many as the plan expects.
TEST(CudaRoundTrip, ThePlansOwnRoomIsEnough) {
  const Patterned what{.elements = 200'000, .density = 0.02, .seed = 6};
  const Elements x = patterned(what);
  for (const Codec codec : kCodecs) {
    const std::uint64_t items = count_items(x, what.type, 1, 0);
    const Plan plan = Plan::make(options_of(what, codec, CellType::automatic, Index::bitmap, items));
    const cuda::Room room = cuda::room_for(plan);
    EXPECT_GE(room.items, items);
    EXPECT_GE(room.index_words, plan.index_words());
    EXPECT_GE(room.payload_bytes, plan.payload_bytes());
    Message expected;
    encode(plan, x.view(), expected);
    DeviceCodec device(plan, room, {});
    EXPECT_EQ(device.encode(x.view()).flags, 0u);
    CheckedDevice(plan).expect_same(device.take(expected.index.size(), expected.payload.size()), expected, "encoded");
    Elements out(what.type, what.elements, 0, Elements::kOld);
    std::vector<std::uint64_t> lost;
    const cuda::Status status = device.decode(out, {}, lost);  // what encode left there
    EXPECT_EQ(status.flags, 0u);
    EXPECT_EQ(status.lost, 0u);
    EXPECT_EQ(std::memcmp(out.data(), x.data(), plan.dense_bytes()), 0);
  }
}

}  // namespace
}  // namespace peel::testing
