// Several workers: the two rounds of packed with OR and SUM in between, messages added up on the device, and random
// plans whose sums are held against a plain map.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "codec/scenario.h"
#include "cuda/checked_device.h"
#include "cuda/patterned_gradient.h"

namespace peel::testing {
namespace {

std::vector<Elements> patterned_workers(Patterned what, std::uint32_t workers) {
  std::vector<Elements> all;
  for (std::uint32_t w = 0; w < workers; ++w) {
    what.seed += 1000;
    all.push_back(patterned(what));
  }
  return all;
}

// The sum, known without any codec; eight workers at most.
Elements sum_of(const std::vector<Elements>& workers, ElementType type) {
  Elements sum = workers[0];
  detail::with_element(type, [&](auto t) {
    using T = decltype(t);
    for (std::size_t w = 1; w < workers.size(); ++w) {
      const auto* x = reinterpret_cast<const T*>(workers[w].data());
      for (std::uint64_t e = 0; e < sum.size(); ++e) sum.as<T>()[e] = detail::add(sum.as<T>()[e], x[e]);
    }
  });
  return sum;
}

void expect_sum(const Plan& plan, const Message& message, const Elements& sum, const std::vector<std::uint64_t>& lost) {
  DeviceCodec device(plan, CheckedDevice(plan).items_of(message), {});
  device.put(message);
  Elements out(plan.type(), plan.elements(), 0, Elements::kOld);
  std::vector<std::uint64_t> named;
  EXPECT_EQ(device.decode(out, {}, named).flags, 0u) << plan.describe();
  EXPECT_EQ(named, lost);
  const std::uint64_t at = first_difference(plan.type(), out.data(), sum.data(), plan.elements(), Zeros::any_sign);
  if (lost.empty()) {
    EXPECT_EQ(at, plan.elements()) << plan.describe();
  }
}

TEST(CudaWorkers, TwoRoundsOfPacked) {
  SeededDraw draw(11);
  for (const std::uint32_t workers : {2u, 3u, 4u}) {
    for (unsigned t = 0; t < 8; ++t) {
      for (const Index index : {Index::bitmap, Index::bloom}) {
        if (small_scale() && !draw.one_in(4)) continue;
        const Patterned what{.type = static_cast<ElementType>(t),
                             .elements = draw.pick<std::uint64_t>({1025, 8193, 100'003}) >> (small_scale() ? 3 : 0),
                             .density = draw.pick({0.001, 0.02, 0.3}),
                             .shape = draw.pick({Shape::uniform, Shape::runs, Shape::rows}),
                             .seed = draw.bits()};
        const std::uint32_t grain = draw.pick({1u, 4u, 64u});
        const std::vector<Elements> gradients = patterned_workers(what, workers);
        const Plan plan = Plan::make({.elements = what.elements,
                                      .type = what.type,
                                      .expected_items = what.elements / grain / 10,
                                      .workers = workers,
                                      .grain = grain,
                                      .phase = grain / 2,
                                      .index = index});
        CheckedDevice checked(plan, {.offset = workers - 2});
        const Message sum = checked.two_rounds(gradients);
        (void)checked.decode(sum);
        expect_sum(plan, sum, sum_of(gradients, what.type), {});
      }
    }
  }
}

// Fixed cells are packed as well where an aggregator adds integers only.
TEST(CudaWorkers, TwoRoundsOfPackedInFixedCells) {
  for (const CellType cells : {CellType::fixed32, CellType::fixed64, CellType::float32}) {
    const Patterned what{.elements = scaled(50'000, 3000), .density = 0.05, .seed = 12};
    const std::vector<Elements> gradients = patterned_workers(what, 3);
    const Plan plan = Plan::make({.elements = what.elements,
                                  .workers = 3,
                                  .cells = cells,
                                  .index = Index::bitmap,
                                  .scale = cells == CellType::float32 ? 0 : kUnitScale});
    CheckedDevice checked(plan);
    const Message sum = checked.two_rounds(gradients);
    (void)checked.decode(sum);
    expect_sum(plan, sum, sum_of(gradients, what.type), {});
  }
}

TEST(CudaWorkers, SketchesAddUpOnTheDevice) {
  SeededDraw draw(13);
  for (const CellType cells : {CellType::fixed32, CellType::fixed64, CellType::float32}) {
    for (const Index index : {Index::bitmap, Index::bloom}) {
      for (const std::uint32_t grain : {1u, 16u}) {
        const Patterned what{.elements = scaled(60'000, 4000),
                             .density = 0.03,
                             .shape = grain == 1 ? Shape::uniform : Shape::rows,
                             .seed = draw.bits(),
                             .most = 31};
        const std::vector<Elements> gradients = patterned_workers(what, 4);
        const Plan plan = Plan::make({.elements = what.elements,
                                      .expected_items = what.elements / grain / 8,
                                      .workers = 4,
                                      .codec = Codec::sketch,
                                      .cells = cells,
                                      .grain = grain,
                                      .index = index,
                                      .scale = cells == CellType::float32 ? 0 : kUnitScale});
        CheckedDevice checked(plan);
        Message sum = checked.encode(gradients[0]);
        for (std::size_t w = 1; w < gradients.size(); ++w) sum = checked.merge(sum, checked.encode(gradients[w]));
        const Recovery recovery = checked.decode(sum);
        expect_sum(plan, sum, sum_of(gradients, what.type), recovery.lost_items);
      }
    }
  }
}

// Messages of round two lie over one index, so their payloads add up cell by cell.
TEST(CudaWorkers, PackedMessagesOfOneUnionAddUpOnTheDevice) {
  for (unsigned t = 0; t < 8; ++t) {
    const Patterned what{.type = static_cast<ElementType>(t), .elements = 9001, .density = 0.1, .seed = 14};
    const std::vector<Elements> gradients = patterned_workers(what, 2);
    const Plan plan =
        Plan::make({.elements = what.elements, .type = what.type, .workers = 2, .grain = 2, .index = Index::bitmap});
    std::vector<Support> supports(2);
    std::vector<Message> messages(2);
    for (int w = 0; w < 2; ++w) encode_index(plan, gradients[w].view(), supports[w], messages[w]);
    for (std::size_t i = 0; i < messages[0].index.size(); ++i) {
      messages[0].index[i] = messages[1].index[i] = messages[0].index[i] | messages[1].index[i];
    }
    for (int w = 0; w < 2; ++w) encode_values(plan, supports[w], messages[w]);
    CheckedDevice checked(plan);
    expect_sum(plan, checked.merge(messages[0], messages[1]), sum_of(gradients, what.type), {});
  }
}

// Over different indexes values of different items would be added up.
TEST(CudaWorkers, PackedMessagesOfDifferentItemsAreNotMerged) {
  for (const Index index : {Index::bitmap, Index::bloom}) {
    const Patterned what{.elements = 5000, .density = 0.05, .seed = 16};
    const Elements x = patterned(what);
    const std::uint64_t items = count_items(x, what.type, 1, 0);
    const Plan plan = Plan::make({.elements = what.elements, .expected_items = items, .workers = 2, .index = index});
    Message message;
    encode(plan, x.view(), message);
    DeviceCodec device(plan, message.payload.size() / 4, {});
    device.put(message);
    EXPECT_EQ(device.merge(message).flags, 0u);
    Message other = message;
    other.index[0] ^= 1;
    const cuda::Status status = device.merge(other);
    EXPECT_EQ(status.flags, cuda::kCorrupt);
    EXPECT_THROW(cuda::check(plan, status), Error);
  }
}

// Fixed cells would wrap, and nothing on the device could tell.
TEST(CudaWorkers, NoMoreWorkersAreMergedThanThereIsRoomFor) {
  const Patterned what{.elements = 5000, .density = 0.05, .seed = 17, .most = 31};
  const Plan plan = Plan::make({.elements = what.elements,
                                .expected_items = 1000,
                                .workers = 3,
                                .codec = Codec::sketch,
                                .index = Index::bitmap,
                                .scale = kUnitScale});
  Message message;
  encode(plan, patterned(what).view(), message);
  DeviceCodec device(plan, message.payload.size() / 4, {});
  device.put(message);
  EXPECT_EQ(device.merge(message).flags, 0u);
  EXPECT_EQ(device.merge(message).flags, 0u);
  EXPECT_THROW(device.merge(message), Error);
  const Message sum = device.take(message.index.size(), message.payload.size());
  EXPECT_EQ(sum.workers, 3u);
  Message uncounted = message;
  uncounted.workers.reset();
  device.put(message);
  EXPECT_THROW(device.merge(uncounted), Error);
}

// Random plans, as the property tests of the CPU's codec draw them: each worker's message, what the CPU makes of their
// sum, and what the device makes of it.
TEST(CudaWorkers, RandomPlans) {
  SeededDraw draw(15);
  for (std::uint64_t i = 0; i < scaled(400, 25); ++i) {
    const Scenario s = draw_scenario(draw, {.rarely_elements = scaled(200'000, 3000), .workers = 4});
    const Plan plan = Plan::make(s.options);
    CheckedDevice checked(plan, {.offset = s.how.offset});
    Message sum;
    ExactGradient exact;
    for (std::size_t w = 0; w < s.workers.size(); ++w) {
      const Message mine = checked.encode(s.workers[w].dense(plan, 0));
      if (w == 0) {
        sum = mine;
      } else if (plan.codec() == Codec::sketch && plan.index() != Index::list) {
        sum = checked.merge(sum, mine);
      } else {
        merge(plan, sum, mine, checked.execution());
      }
      exact.add(s.workers[w]);
    }
    const Recovery recovery = checked.decode(sum);
    if (recovery.lost == 0) expect_sum(plan, sum, exact.dense(plan, 0), {});
    ASSERT_FALSE(HasFailure()) << "scenario " << i;
  }
}

}  // namespace
}  // namespace peel::testing
