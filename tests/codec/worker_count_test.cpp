// How many workers a message holds: one after encode, the sum after merge, the same in a file. More than the plan has
// room for are refused wherever they turn up, and so is a merge of what does not say.
#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <vector>

#include "peel/peel.h"
#include "refusal.h"

namespace peel::testing {
namespace {

Plan fixed_plan(Codec codec, std::uint32_t workers, Index index = Index::bitmap) {
  return Plan::make({.elements = 100,
                     .expected_items = 10,
                     .workers = workers,
                     .codec = codec,
                     .cells = CellType::fixed32,
                     .index = index,
                     .scale = fit_scale(1, CellType::fixed32, workers)});
}

std::vector<float> ones() {
  std::vector<float> x(100);
  x[3] = x[50] = 1;
  return x;
}

Message encoded(const Plan& plan) {
  Message message;
  encode(plan, ones(), message);
  return message;
}

TEST(WorkerCount, IsOneAfterEncodeAndAddsUp) {
  for (const Codec codec : {Codec::packed, Codec::sketch}) {
    for (const Index index : {Index::bitmap, Index::bloom, Index::list}) {
      const Plan plan = fixed_plan(codec, 7, index);
      EXPECT_EQ(Message(plan).workers, 0u);
      Message sum = encoded(plan);
      EXPECT_EQ(sum.workers, 1u);
      merge(plan, sum, encoded(plan));
      EXPECT_EQ(sum.workers, 2u);
      merge(plan, sum, sum);
      EXPECT_EQ(sum.workers, 4u);
      merge(plan, sum, Message(plan));
      EXPECT_EQ(parse(serialise(plan, sum)).message.workers, 4u);
    }
  }
}

TEST(WorkerCount, OfTheTwoRoundsIsThatOfOneWorker) {
  const Plan plan = fixed_plan(Codec::packed, 2);
  Support own;
  Message message;
  encode_index(plan, ones(), own, message);
  encode_values(plan, own, message);
  EXPECT_EQ(message.workers, 1u);
}

// 1 + 1 fill a plan for two; a third would make -1 of 3.
TEST(WorkerCount, ChainedMergesStopAtTheRoomOfThePlan) {
  for (const Codec codec : {Codec::packed, Codec::sketch}) {
    for (const Index index : {Index::bitmap, Index::bloom, Index::list}) {
      const Plan plan = fixed_plan(codec, 2, index);
      EXPECT_EQ(plan.most_workers(), 2u);
      Message sum = encoded(plan);
      merge(plan, sum, encoded(plan));
      const std::vector<std::byte> before = serialise(plan, sum);
      for (const Message& more : {encoded(plan), sum}) {
        expect_refusal(ErrorCode::invalid_argument, "room for 2 workers", [&] { merge(plan, sum, more); });
      }
      Message other = encoded(plan);
      expect_refusal(ErrorCode::invalid_argument, "hold 1 and 2", [&] { merge(plan, other, sum); });
      EXPECT_EQ(serialise(plan, sum), before);
      std::vector<float> out(100);
      decode(plan, sum, out);
      EXPECT_NEAR(out[3], 2, plan.error_bound());
    }
  }
}

TEST(WorkerCount, WhatWrapsByDefinitionOrRoundsHasNoLimitButThatOfTheCount) {
  for (const PlanOptions& options : {PlanOptions{.elements = 100, .expected_items = 10},
                                     PlanOptions{.elements = 100, .expected_items = 10, .cells = CellType::float32}}) {
    const Plan plan = Plan::make(options);
    EXPECT_EQ(plan.most_workers(), Plan::kMostWorkers);
    Message sum = encoded(plan);
    for (int doubled = 0; doubled < 62; ++doubled) merge(plan, sum, sum);
    EXPECT_EQ(sum.workers, std::uint64_t{1} << 62);
    expect_refusal(ErrorCode::invalid_argument, "room", [&] { merge(plan, sum, sum); });
  }
  const Plan integers = Plan::make({.elements = 100,
                                    .type = ElementType::int32,
                                    .expected_items = 10,
                                    .codec = Codec::sketch,
                                    .cells = CellType::fixed32});
  EXPECT_EQ(integers.most_workers(), Plan::kMostWorkers);
}

TEST(WorkerCount, AMessageThatDoesNotSayIsDecodedButNotMergedNorWritten) {
  const Plan plan = fixed_plan(Codec::sketch, 2);
  Message unknown = encoded(plan);
  unknown.workers.reset();
  std::vector<float> out(100);
  EXPECT_EQ(decode(plan, unknown, out).lost, 0u);
  EXPECT_NEAR(out[3], 1, plan.error_bound());
  Message known = encoded(plan);
  expect_refusal(ErrorCode::invalid_argument, "how many workers", [&] { merge(plan, known, unknown); });
  expect_refusal(ErrorCode::invalid_argument, "how many workers", [&] { merge(plan, unknown, known); });
  expect_refusal(ErrorCode::invalid_argument, "how many workers", [&] { (void)serialise(plan, unknown); });
}

// As after a collective over more workers than were planned for.
TEST(WorkerCount, MoreThanThereIsRoomForAreNeitherDecodedNorWritten) {
  const Plan plan = fixed_plan(Codec::sketch, 2);
  Message message = encoded(plan);
  message.workers = 3;
  std::vector<float> out(100, 7.0f);
  expect_refusal(ErrorCode::invalid_argument, "may have wrapped", [&] { decode(plan, message, out); });
  EXPECT_EQ(out, std::vector<float>(100, 7.0f));
  expect_refusal(ErrorCode::invalid_argument, "may have wrapped", [&] { (void)serialise(plan, message); });
}

TEST(PlausibleDenseBytes, AreAThousandTimesTheMessageAndAtLeast64MiB) {
  Message message;
  EXPECT_EQ(plausible_dense_bytes(message), std::uint64_t{64} << 20);
  message.payload.resize(1'000'000);
  EXPECT_EQ(plausible_dense_bytes(message), 1'000'000'000u);
}

}  // namespace
}  // namespace peel::testing
