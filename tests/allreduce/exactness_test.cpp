// Every strategy, view, element type, number of workers, length and pattern: the sum on every worker is the sum.
// Gradients are such that any order of additions gives the same bits, so nothing is compared with a tolerance.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "allreduce/known_gradients.h"
#include "allreduce/small_world.h"
#include "allreduce/workers.h"
#include "peel/allreduce.h"
#include "scale.h"

namespace peel::testing {
namespace {

constexpr Strategy kStrategies[] = {Strategy::automatic, Strategy::dense, Strategy::packed,
                                    Strategy::sketch,    Strategy::split, Strategy::gather};
constexpr unsigned kWorkerCounts[] = {1, 2, 3, 4, 7};

// None, one, odd ones below and above a few chunks, and one that ends with a chunk.
struct Length {
  std::uint64_t elements;
  std::uint64_t chunk_bytes;
};
constexpr Length kLengths[] = {{0, 0}, {1, 0}, {777, 0}, {3073, 1}, {4096, 8192}};

std::vector<ElementType> all_types() {
  if (small_scale()) return {ElementType::float32, ElementType::bfloat16, ElementType::int64};
  std::vector<ElementType> types;
  for (int t = 0; t < 8; ++t) types.push_back(static_cast<ElementType>(t));
  return types;
}

std::string describe(unsigned workers, Strategy strategy, ElementType type, const Length& length, Pattern pattern) {
  return std::to_string(workers) + " workers, " + std::string(name(strategy)) + ", " + std::string(name(type)) + ", " +
         std::to_string(length.elements) + " elements, pattern " + std::to_string(static_cast<int>(pattern));
}

class Exactness : public ::testing::TestWithParam<Strategy> {};
INSTANTIATE_TEST_SUITE_P(Strategies, Exactness, ::testing::ValuesIn(kStrategies),
                         [](const auto& tested) { return std::string(name(tested.param)); });

// Three steps each: without knowledge, with what the first one taught, and with what a grain made of it.
void check_dense(unsigned workers, Strategy strategy, ElementType type, const Length& length, Pattern pattern) {
  SCOPED_TRACE(describe(workers, strategy, type, length, pattern));
  SmallWorld world(workers, {.strategy = strategy, .chunk_bytes = length.chunk_bytes});
  SeededDraw random(length.elements * 100 + static_cast<std::uint64_t>(pattern));
  for (std::uint64_t step = 0; step < 3; ++step) {
    const KnownStep known =
        KnownStep::draw({.elements = length.elements, .type = type, .pattern = pattern}, workers, random);
    ASSERT_NO_THROW(world.step(known, type, View::dense, step)) << "step " << step;
  }
}

TEST_P(Exactness, DenseView) {
  for (const unsigned workers : kWorkerCounts) {
    for (const ElementType type : all_types()) {
      for (const Length& length : kLengths) {
        for (const Pattern pattern : kPatterns) check_dense(workers, GetParam(), type, length, pattern);
        if (HasFatalFailure()) return;
      }
    }
  }
}

void check_sparse(unsigned workers, Strategy strategy, ElementType type, const Length& length, Pattern pattern,
                  std::uint32_t grain) {
  SCOPED_TRACE(describe(workers, strategy, type, length, pattern) + ", grain " + std::to_string(grain));
  SmallWorld world(
      workers, {.strategy = strategy, .grain = grain, .elements = length.elements, .chunk_bytes = length.chunk_bytes});
  SeededDraw random(length.elements * 100 + static_cast<std::uint64_t>(pattern));
  for (std::uint64_t step = 0; step < 2; ++step) {
    const KnownStep known =
        KnownStep::draw({.elements = length.elements, .type = type, .pattern = pattern}, workers, random);
    ASSERT_NO_THROW(world.step(known, type, View::sparse, step)) << "step " << step;
  }
}

TEST_P(Exactness, SparseView) {
  if (GetParam() == Strategy::dense) GTEST_SKIP() << "a sparse gradient has no dense sum";
  for (const unsigned workers : kWorkerCounts) {
    for (const ElementType type : all_types()) {
      for (const Length& length : kLengths) {
        if (length.elements == 0) continue;  // the sparse view has to know how long the array is
        for (const Pattern pattern : kPatterns) {
          check_sparse(workers, GetParam(), type, length, pattern, pattern == Pattern::rows ? 64 : 1);
        }
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(Exactness, SparseViewOfEveryGrain) {
  if (GetParam() == Strategy::dense) GTEST_SKIP() << "a sparse gradient has no dense sum";
  for (std::uint32_t grain = 1; grain <= 1024; grain *= 2) {
    check_sparse(3, GetParam(), ElementType::float32, {.elements = 20'011, .chunk_bytes = 1}, Pattern::runs, grain);
    if (HasFatalFailure()) return;
  }
}

TEST_P(Exactness, DenseViewOfEveryGivenGrain) {
  for (std::uint32_t grain = 1; grain <= 1024; grain *= 2) {
    SmallWorld world(3, {.strategy = GetParam(), .grain = grain, .chunk_bytes = 20'000});
    SeededDraw random(grain);
    for (std::uint64_t step = 0; step < 2; ++step) {
      const KnownStep known = KnownStep::draw({.elements = 20'011, .pattern = Pattern::runs}, 3, random);
      const Report report = world.step(known, ElementType::float32, View::dense, step);
      EXPECT_EQ(report.grain, grain);
    }
  }
}

// The same over a real transport, threads and all; a thinner choice of cases.
TEST_P(Exactness, BetweenThreads) {
  const Strategy strategy = GetParam();
  const std::uint64_t elements = scaled(40'003, 9'001);
  for (const unsigned workers : kWorkerCounts) {
    SeededDraw random(workers);
    std::vector<KnownStep> steps;
    const std::vector<ElementType> types = {ElementType::float32, ElementType::float16, ElementType::int64};
    for (const ElementType type : types) {
      for (int step = 0; step < 3; ++step) {
        steps.push_back(
            KnownStep::draw({.elements = elements, .type = type, .pattern = kPatterns[step]}, workers, random));
      }
    }
    const Errors errors = on_each(workers, [&](Communicator& communicator) {
      for (std::size_t t = 0; t < types.size(); ++t) {
        State dense({.strategy = strategy, .link = kSlowLink, .chunk_bytes = 16'384, .timeout = kPatient});
        State sparse({.strategy = strategy,
                      .grain = 16,
                      .elements = elements,
                      .link = kSlowLink,
                      .chunk_bytes = 512,
                      .timeout = kPatient});
        for (std::size_t step = 0; step < 3; ++step) {
          const KnownStep& known = steps[t * 3 + step];
          const KnownGradient& mine = known.workers[communicator.rank()];
          Array x(mine.dense(types[t]), types[t]);
          const Report report = allreduce(communicator, x.view(), dense);
          EXPECT_EQ(difference(known.sum, types[t], x.bytes()), "") << report.to_json();
          EXPECT_EQ(report.step, step + 1);
          if (strategy == Strategy::dense) continue;
          Sparse rows = mine.sparse(types[t], 16);
          allreduce(communicator, rows, sparse);
          EXPECT_EQ(difference(known, 16, rows), "");
        }
      }
    });
    EXPECT_EQ(first_error(errors), "");
  }
}

// Without a link given, it is measured, once for each communicator.
TEST(MeasuredLink, IsTheSameOnEveryWorker) {
  SeededDraw random(1);
  const KnownStep known = KnownStep::draw({.elements = 3000}, 3, random);
  const Communicators communicators = make_inprocess(3);
  const Errors errors = on_each(communicators, [&](Communicator& communicator) {
    State state({.timeout = kPatient});
    for (int step = 0; step < 3; ++step) {
      Array x(known.workers[communicator.rank()].dense(ElementType::float32), ElementType::float32);
      allreduce(communicator, x.view(), state);
      EXPECT_EQ(difference(known.sum, ElementType::float32, x.bytes()), "");
    }
  });
  EXPECT_EQ(first_error(errors), "");
  for (const auto& communicator : communicators) {
    ASSERT_TRUE(communicator->link().has_value());
    EXPECT_EQ(communicator->link()->latency_s, communicators[0]->link()->latency_s);
    EXPECT_EQ(communicator->link()->bytes_per_second, communicators[0]->link()->bytes_per_second);
    EXPECT_EQ(communicator->link()->copy_bytes_per_second, communicators[0]->link()->copy_bytes_per_second);
  }
}

}  // namespace
}  // namespace peel::testing
