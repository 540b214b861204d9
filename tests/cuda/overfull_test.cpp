// Sketches with far more items than they were planned for: what peels is exact, what does not is named, keeps its old
// value and is estimated only on demand. Never a wrong element.
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "cuda/checked_device.h"
#include "cuda/patterned_gradient.h"

namespace peel::testing {
namespace {

struct Overfull {
  Plan plan;
  Elements x;
};

// `times` as many items as expected.
Overfull overfull(Patterned what, CellType cells, std::uint32_t grain, double times) {
  Elements x = patterned(what);
  const std::uint64_t items = count_items(x, what.type, grain, 0);
  return {Plan::make({.elements = what.elements,
                      .type = what.type,
                      .expected_items = static_cast<std::uint64_t>(static_cast<double>(items) / times),
                      .codec = Codec::sketch,
                      .cells = cells,
                      .grain = grain,
                      .index = Index::bitmap,
                      .seed = what.seed,
                      .scale = cells == CellType::float32 || is_integer(what.type) ? 0 : kUnitScale}),
          std::move(x)};
}

void expect_nothing_wrong(const Overfull& o, const Message& message) {
  const Recovery cpu = CheckedDevice(o.plan).decode(message);
  DeviceCodec device(o.plan, cpu.items, {});
  device.put(message);
  Elements out(o.plan.type(), o.plan.elements(), 0, Elements::kOld);
  std::vector<std::uint64_t> named;
  const cuda::Status status = device.decode(out, {}, named);
  EXPECT_EQ(status.flags, 0u);
  EXPECT_NO_THROW(cuda::check(o.plan, status)) << "loss is no error";
  const std::set<std::uint64_t> lost(named.begin(), named.end());
  EXPECT_EQ(lost.size(), status.lost);
  const std::size_t bytes = size_of(o.plan.type());
  std::uint64_t wrong = 0;
  for (std::uint64_t e = 0; e < o.plan.elements(); ++e) {
    const bool is_lost = lost.contains(detail::item_of(o.plan.geometry(), e));
    for (std::size_t b = 0; b < bytes; ++b) {
      const std::byte expected = is_lost ? Elements::kOld : o.x.data()[e * bytes + b];
      wrong += out.data()[e * bytes + b] != expected;
    }
  }
  EXPECT_EQ(wrong, 0u) << o.plan.describe();
}

TEST(CudaOverfull, NamesWhatItLosesAndGetsTheRestRight) {
  std::uint64_t partly = 0;
  for (const double times : {1.1, 1.2, 1.3, 3.0, 30.0}) {
    for (const CellType cells : {CellType::fixed32, CellType::fixed64}) {
      for (const std::uint32_t grain : {1u, 8u, 64u}) {
        const Overfull o = overfull({.elements = scaled(200'000, 6000) * grain / 4,
                                     .density = 0.1,
                                     .shape = grain == 1 ? Shape::uniform : Shape::rows,
                                     .seed = 21 + grain},
                                    cells, grain, times);
        Message message;
        encode(o.plan, o.x.view(), message);
        const Recovery r = CheckedDevice(o.plan).decode(message);
        partly += r.lost != 0 && r.recovered != 0;
        if (times >= 3) {
          EXPECT_GT(r.lost, 0u);
        }
        expect_nothing_wrong(o, message);
      }
    }
  }
  EXPECT_GE(partly, 1u) << "nothing was lost in part, so this tests little";
}

TEST(CudaOverfull, InEveryType) {
  for (unsigned t = 0; t < 8; ++t) {
    const auto type = static_cast<ElementType>(t);
    const Overfull o = overfull({.type = type, .elements = scaled(40'000, 4000), .density = 0.2, .seed = 22},
                                CellType::fixed64, 4, 3.5);
    Message message;
    encode(o.plan, o.x.view(), message);
    expect_nothing_wrong(o, message);
  }
}

// Float cells: CheckedDevice compares recovered elements and estimates by value, whatever the sign of a zero.
TEST(CudaOverfull, InFloatCells) {
  const Overfull o =
      overfull({.elements = scaled(40'000, 4000), .density = 0.2, .seed = 23, .most = 31}, CellType::float32, 1, 1.3);
  Message message;
  encode(o.plan, o.x.view(), message);
  (void)CheckedDevice(o.plan).decode(message);
}

// The list may have less room than there are lost items: they are counted all the same, and nothing is written past it.
TEST(CudaOverfull, TheListOfLostItemsStopsAtItsRoom) {
  const Overfull o = overfull({.elements = 20'000, .density = 0.2, .seed = 24}, CellType::fixed32, 1, 5);
  Message message;
  encode(o.plan, o.x.view(), message);
  const Recovery cpu = CheckedDevice(o.plan).decode(message);
  const std::set<std::uint64_t> lost(cpu.lost_items.begin(), cpu.lost_items.end());
  ASSERT_GT(lost.size(), 100u);
  DeviceCodec device(o.plan, cpu.items, {});
  device.put(message);
  for (const std::uint64_t room : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{77}}) {
    Elements out(o.plan.type(), o.plan.elements(), 0, Elements::kOld);
    std::vector<std::uint64_t> named;
    EXPECT_EQ(device.decode(out, {.lost_room = room}, named).lost, cpu.lost);
    EXPECT_EQ(named.size(), room);
    for (const std::uint64_t item : named) EXPECT_TRUE(lost.contains(item));
  }
}

}  // namespace
}  // namespace peel::testing
