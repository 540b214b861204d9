// An exchange without I/O, driven by hand: whatever ends first, all workers ask for the same collectives in the same
// order, and the sum is the same.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "allreduce/small_world.h"
#include "property.h"
#include "refusal.h"
#include "scale.h"

namespace peel::testing {
namespace {

struct Scenario {
  unsigned workers = 1;
  StateOptions options;
  ElementType type = ElementType::float32;
  View view = View::dense;
  std::vector<Drawing> steps;
};

Scenario draw_scenario(Draw& draw) {
  Scenario s;
  s.workers = static_cast<unsigned>(1 + draw.below(7));
  s.type = static_cast<ElementType>(draw.below(8));
  s.view = draw.pick({View::dense, View::sparse});
  const std::uint64_t elements = 1 + draw.below(draw.one_in(10) ? 30'000 : 3000);
  s.options.strategy = static_cast<Strategy>(draw.below(6));
  s.options.chunk_bytes = draw.pick<std::uint64_t>({0, 1, 10'000});
  s.options.seed = draw.below(1000);
  if (s.view == View::sparse) {
    s.options.elements = elements;
    s.options.grain = 1u << draw.below(11);
    if (s.options.strategy == Strategy::dense) s.options.strategy = Strategy::automatic;
  } else if (draw.one_in(3)) {
    s.options.grain = 1u << draw.below(11);
  }
  for (std::uint64_t n = 1 + draw.below(4); n > 0; --n) {
    s.steps.push_back({.elements = elements,
                       .type = s.type,
                       .pattern = kPatterns[draw.below(std::size(kPatterns))],
                       .density = draw.pick({0.01, 0.001, 0.1, 0.5}),
                       .row = std::uint64_t{1} << draw.below(8),
                       .phase = draw.below(64)});
  }
  return s;
}

TEST(ExchangeOrder, AnyOrderOfCompletionGivesTheSameCollectivesAndTheSum) {
  check_property(41, static_cast<int>(scaled(1500, 200)), [](Draw& draw) {
    const Scenario s = draw_scenario(draw);
    SeededDraw random(draw.below(1 << 20));
    SmallWorld world(s.workers, s.options);
    for (const Drawing& how : s.steps) {
      world.step(KnownStep::draw(how, s.workers, random), s.type, s.view, random.bits());
    }
  });
}

// The loop that peel/exchange.h shows: it performs each collective before it asks for the next.
TEST(ExchangeOrder, ADriverThatWaitsForEachCollectiveGetsTheSum) {
  for (const Strategy strategy :
       {Strategy::automatic, Strategy::dense, Strategy::packed, Strategy::sketch, Strategy::split, Strategy::gather}) {
    SeededDraw random(7);
    const KnownStep known = KnownStep::draw({.elements = 9001, .pattern = Pattern::runs}, 3, random);
    const Errors errors = on_each(3, [&](Communicator& communicator) {
      State state({.strategy = strategy, .chunk_bytes = 8192});
      for (int step = 0; step < 2; ++step) {
        Array x(known.workers[communicator.rank()].dense(ElementType::float32), ElementType::float32);
        Exchange exchange(state, {.rank = communicator.rank(), .size = 3, .link = kSlowLink}, x.view());
        const std::uint32_t channel = communicator.open_channel();
        while (Collective* ask = exchange.next()) {
          EXPECT_FALSE(exchange.finished());
          perform(communicator, *ask, channel, kPatient);
          exchange.complete(*ask);
        }
        EXPECT_TRUE(exchange.finished());
        EXPECT_EQ(exchange.next(), nullptr) << "a finished exchange asks for nothing more";
        EXPECT_EQ(difference(known.sum, ElementType::float32, x.bytes()), "") << name(strategy);
      }
    });
    EXPECT_EQ(first_error(errors), "") << name(strategy);
  }
}

// So that the OR of one chunk runs beside the SUM of another.
TEST(ExchangeOrder, SeveralChunksAreUnderWayAtOnce) {
  State state({.strategy = Strategy::packed, .chunk_bytes = 4096});
  std::vector<float> x(10'240, 1.0f);
  Exchange exchange(state, {.rank = 0, .size = 2, .link = kSlowLink}, x);
  Collective* opening = exchange.next();
  ASSERT_NE(opening, nullptr);
  EXPECT_EQ(opening->kind, Collective::Kind::bit_or);
  EXPECT_EQ(opening->data.size(), 64u);
  EXPECT_EQ(exchange.next(), nullptr) << "nothing moves before the workers agree";
  exchange.complete(*opening);
  std::vector<Collective*> under_way;
  while (Collective* ask = exchange.next()) under_way.push_back(ask);
  EXPECT_GE(under_way.size(), 2u);
  // The last of them ends first: nothing new until the first one does.
  exchange.complete(*under_way.back());
  EXPECT_EQ(exchange.next(), nullptr);
  exchange.complete(*under_way.front());
  Collective* values = exchange.next();
  ASSERT_NE(values, nullptr);
  EXPECT_EQ(values->kind, Collective::Kind::sum);
}

TEST(ExchangeOrder, CompletingWhatWasNotHandedOutIsRefused) {
  State state;
  std::vector<float> x(100, 1.0f);
  Exchange exchange(state, {.rank = 0, .size = 2, .link = kSlowLink}, x);
  exchange.complete(*exchange.next());
  Collective stranger;
  expect_refusal(ErrorCode::invalid_argument, "not one that the exchange handed out",
                 [&] { exchange.complete(stranger); });
}

// An exchange that is given up frees its state: the next one begins.
TEST(ExchangeOrder, AnAbandonedExchangeLeavesItsStateUsable) {
  SmallWorld world(2, {.strategy = Strategy::sketch, .chunk_bytes = 4096});
  SeededDraw random(3);
  const KnownStep known = KnownStep::draw({.elements = 5000}, 2, random);
  world.step(known, ElementType::float32, View::dense, 1);
  for (unsigned w = 0; w < 2; ++w) {
    std::vector<float> x(5000, 1.0f);
    Exchange given_up(world.states()[w], world.world(w), x);
    given_up.complete(*given_up.next());
    (void)given_up.next();
  }
  const Report report = world.step(known, ElementType::float32, View::dense, 2);
  EXPECT_EQ(report.step, 2u) << "what was given up is no step";
}

}  // namespace
}  // namespace peel::testing
