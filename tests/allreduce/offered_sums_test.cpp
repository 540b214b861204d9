// Transports that can add some types of numbers and not others. What they cannot add they are never asked to: another
// cell type or strategy takes its place, or every worker refuses before anything moves.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "allreduce/known_gradients.h"
#include "allreduce/workers.h"
#include "peel/allreduce.h"
#include "refusal.h"

namespace peel::testing {
namespace {

struct Offer {
  SumTypes sums;
  bool moves_buffers = false;
};

SumTypes only(std::initializer_list<ElementType> types) {
  SumTypes sums;
  for (const ElementType type : types) sums.add(type);
  return sums;
}

SumTypes all_but(std::initializer_list<ElementType> types) {
  SumTypes sums;
  for (unsigned one = 0; one < 8; ++one) {
    const auto type = static_cast<ElementType>(one);
    if (std::find(types.begin(), types.end(), type) == types.end()) sums.add(type);
  }
  return sums;
}

// Fails the test if it is asked for what it does not offer.
class Choosy final : public Communicator {
 public:
  Choosy(Communicator& threads, const Offer& offer) : threads_(threads), offer_(offer) {}

  [[nodiscard]] unsigned rank() const noexcept override { return threads_.rank(); }
  [[nodiscard]] unsigned size() const noexcept override { return threads_.size(); }
  [[nodiscard]] std::string_view transport() const noexcept override { return "choosy"; }
  [[nodiscard]] bool offers(Collective::Kind kind, ElementType type) const noexcept override {
    if (kind == Collective::Kind::sum) return offer_.sums.has(type);
    return kind == Collective::Kind::bit_or || offer_.moves_buffers;
  }
  std::uint32_t open_channel() override { return threads_.open_channel(); }
  std::unique_ptr<Operation> start(Collective& what, std::uint32_t channel,
                                   std::chrono::milliseconds timeout) override {
    EXPECT_TRUE(offers(what.kind, what.type)) << "asked for " << name(what.kind) << " of " << name(what.type);
    return threads_.start(what, channel, timeout);
  }
  void relax() override { threads_.relax(); }

 private:
  Communicator& threads_;
  Offer offer_;
};

constexpr ElementType kHalf = ElementType::float16;

// A few steps, from sparse ones to a dense one, so that automatic choices meet all strategies.
void expect_right_sums(const Offer& offer, const StateOptions& options, ElementType type) {
  SeededDraw random(5);
  std::vector<KnownStep> steps;
  for (const double density : {0.01, 0.2, 1.0, 1.0, 0.01}) {
    steps.push_back(KnownStep::draw({.elements = 6000, .type = type, .density = density}, 3, random));
  }
  const Errors errors = on_each(3, [&](Communicator& threads) {
    Choosy communicator(threads, offer);
    State state(options);
    for (const KnownStep& known : steps) {
      Array x(known.workers[communicator.rank()].dense(type), type);
      allreduce(communicator, x.view(), state);
      EXPECT_EQ(difference(known.sum, type, x.bytes()), "") << name(type) << ", " << name(options.strategy);
    }
  });
  EXPECT_EQ(first_error(errors), "") << name(type) << ", " << name(options.strategy);
}

StateOptions with(Strategy strategy, CellType cells = CellType::automatic) {
  return {.strategy = strategy, .cells = cells, .link = kSlowLink, .chunk_bytes = 8192, .timeout = kPatient};
}

TEST(OfferedSums, WhatCannotBeAddedTravelsInFixedCells) {
  for (const Strategy strategy : {Strategy::automatic, Strategy::packed, Strategy::sketch}) {
    expect_right_sums({.sums = all_but({kHalf})}, with(strategy), kHalf);
    expect_right_sums({.sums = all_but({ElementType::bfloat16, kHalf})}, with(strategy), ElementType::bfloat16);
    expect_right_sums({.sums = all_but({ElementType::int8})}, with(strategy), ElementType::int8);
    expect_right_sums({.sums = only({ElementType::int64})}, with(strategy), kHalf);
  }
}

TEST(OfferedSums, WhereBuffersMoveNothingHasToBeAdded) {
  for (const Strategy strategy : {Strategy::automatic, Strategy::split, Strategy::gather}) {
    expect_right_sums({.sums = {}, .moves_buffers = true}, with(strategy), kHalf);
    expect_right_sums({.sums = all_but({kHalf}), .moves_buffers = true}, with(strategy), kHalf);
  }
}

TEST(OfferedSums, DisabledTakesThePlainestThatCanBeAdded) {
  setenv("PEEL_DISABLE", "1", 1);
  expect_right_sums({.sums = all_but({kHalf})}, with(Strategy::automatic), kHalf);
  expect_right_sums({.sums = {}, .moves_buffers = true}, with(Strategy::automatic), kHalf);
  unsetenv("PEEL_DISABLE");
}

void expect_refused(const Offer& offer, const StateOptions& options, const std::string& fragment) {
  const Errors errors = on_each(3, [&](Communicator& threads) {
    Choosy communicator(threads, offer);
    State state(options);
    const std::vector<std::byte> before(6000, std::byte{1});
    Array x(before, kHalf);
    expect_refusal(ErrorCode::invalid_argument, fragment, [&] { allreduce(communicator, x.view(), state); });
    EXPECT_EQ(x.bytes(), before);
  });
  EXPECT_EQ(first_error(errors), "");
}

TEST(OfferedSums, WhatNothingCanAddIsRefusedBeforeAnythingMoves) {
  expect_refused({.sums = all_but({kHalf})}, with(Strategy::dense), "cannot add float16");
  expect_refused({.sums = only({ElementType::float64})}, with(Strategy::automatic), "cannot add float16");
  expect_refused({.sums = only({ElementType::float64})}, with(Strategy::packed), "cannot add int32");
  expect_refused({.sums = only({ElementType::float64})}, with(Strategy::sketch), "cannot add int32");
  expect_refused({.sums = SumTypes::integers()}, with(Strategy::sketch, CellType::float32), "cannot add float32");
}

}  // namespace
}  // namespace peel::testing
