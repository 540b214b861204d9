// Reduce-scatter: every worker ends with the sum of its own share, and with everything else as it was.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "allreduce/known_gradients.h"
#include "allreduce/round_table.h"
#include "allreduce/workers.h"
#include "codec/values.h"
#include "peel/allreduce.h"
#include "scale.h"

namespace peel::testing {
namespace {

TEST(Shares, CoverTheArrayInOrder) {
  for (const std::uint64_t elements : {0u, 1u, 2u, 7u, 63u, 64u, 1000u}) {
    for (const unsigned workers : {1u, 2u, 3u, 7u, 64u}) {
      std::uint64_t end = 0;
      const std::uint64_t most = (elements + workers - 1) / workers;
      for (unsigned w = 0; w < workers; ++w) {
        const Share share = share_of(elements, workers, w);
        EXPECT_EQ(share.begin, end);
        EXPECT_LE(share.end - share.begin, most);
        end = share.end;
      }
      EXPECT_EQ(end, elements);
    }
  }
}

void expect_scattered(const KnownStep& known, ElementType type, unsigned rank, const std::vector<std::byte>& x) {
  const auto workers = static_cast<unsigned>(known.workers.size());
  const Share share = share_of(known.sum.size(), workers, rank);
  const std::size_t element = size_of(type);
  std::vector<std::byte> expected = known.workers[rank].dense(type);
  const std::vector<std::byte> sum = known.sum.dense(type);
  std::copy(sum.begin() + static_cast<std::ptrdiff_t>(share.begin * element),
            sum.begin() + static_cast<std::ptrdiff_t>(share.end * element),
            expected.begin() + static_cast<std::ptrdiff_t>(share.begin * element));
  ASSERT_EQ(x.size(), expected.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(x[i], expected[i]) << "worker " << rank << ", element " << i / element
                                 << (i / element >= share.begin && i / element < share.end ? " of" : " outside of")
                                 << " its share";
  }
}

class ReduceScatter : public ::testing::TestWithParam<Strategy> {};
INSTANTIATE_TEST_SUITE_P(Strategies, ReduceScatter,
                         ::testing::Values(Strategy::automatic, Strategy::dense, Strategy::split),
                         [](const auto& tested) { return std::string(name(tested.param)); });

TEST_P(ReduceScatter, EachWorkerGetsItsShareAndNothingElseChanges) {
  SeededDraw random(31);
  for (const unsigned workers : {1u, 2u, 3u, 7u}) {
    for (const std::uint64_t elements : {0u, 1u, 5u, 777u, 20'001u}) {
      for (const std::uint32_t grain : {0u, 1u, 64u}) {
        for (const ElementType type : {ElementType::float32, ElementType::float16, ElementType::int64}) {
          std::vector<State> states;
          for (unsigned w = 0; w < workers; ++w) {
            states.emplace_back(StateOptions{.strategy = GetParam(), .grain = grain, .chunk_bytes = 4096});
          }
          for (const Pattern pattern : {Pattern::runs, Pattern::full, Pattern::nothing, Pattern::uniform}) {
            const KnownStep known =
                KnownStep::draw({.elements = elements, .type = type, .pattern = pattern}, workers, random);
            RoundTable table(elements);
            std::vector<Array> arrays;
            for (unsigned w = 0; w < workers; ++w) arrays.emplace_back(known.workers[w].dense(type), type);
            for (unsigned w = 0; w < workers; ++w) {
              const World world{.rank = w, .size = workers, .link = kSlowLink};
              table.join(std::make_unique<Exchange>(states[w], world, arrays[w].view(), Outcome::scattered));
            }
            table.run();
            for (unsigned w = 0; w < workers; ++w) {
              ASSERT_FALSE(table.error(w)) << table.error(w)->what();
              ASSERT_NO_FATAL_FAILURE(expect_scattered(known, type, w, arrays[w].bytes()))
                  << workers << " workers, " << elements << " elements, grain " << grain;
              EXPECT_EQ(table.report(w).lost, 0u);
              if (workers > 1 && elements > 0) {
                EXPECT_EQ(table.report(w).rounds, 1u);
              }
            }
          }
        }
      }
    }
  }
}

TEST_P(ReduceScatter, BetweenThreads) {
  SeededDraw random(32);
  const std::uint64_t elements = scaled(100'003, 20'003);
  const KnownStep known = KnownStep::draw({.elements = elements, .pattern = Pattern::rows, .density = 0.05}, 4, random);
  const Errors errors = on_each(4, [&](Communicator& communicator) {
    State state({.strategy = GetParam(), .link = kSlowLink, .chunk_bytes = 65'536, .timeout = kPatient});
    for (int step = 0; step < 3; ++step) {
      Array x(known.workers[communicator.rank()].dense(ElementType::float32), ElementType::float32);
      const Report report = reduce_scatter(communicator, x.view(), state);
      expect_scattered(known, ElementType::float32, communicator.rank(), x.bytes());
      EXPECT_EQ(report.exactness, Exactness::rounded_once);
      EXPECT_EQ(report.dense_bytes, elements * 4 * 3 / 4);
      if (GetParam() != Strategy::dense) {
        EXPECT_LT(report.bytes_sent, report.dense_bytes / 5);
      }
    }
  });
  EXPECT_EQ(first_error(errors), "");
}

// NaN stays where it is, sums are added in rank order in a wider type and rounded once.
TEST_P(ReduceScatter, AddsInRankOrderAndRoundsOnce) {
  const Errors errors = on_each(3, [&](Communicator& communicator) {
    State state({.strategy = GetParam(), .link = kSlowLink, .timeout = kPatient});
    const float own[] = {1.0f, 0x1p-24f, 0x1p-24f};
    std::vector<float> x(9, own[communicator.rank()]);
    const unsigned rank = communicator.rank();
    if (rank == 1) x[8] = std::numeric_limits<float>::quiet_NaN();
    reduce_scatter(communicator, x, state);
    EXPECT_EQ(x[rank * 3], 1.0f + 0x1p-23f) << "float additions one by one would give 1";
    EXPECT_EQ(std::isnan(x[8]), rank == 2 || rank == 1) << "the owner of the last share, and who has it";
  });
  EXPECT_EQ(first_error(errors), "");
}

// Auto notices that nothing is zero, and sends elements; and that much is zero again, and sends items.
TEST(ReduceScatterChoice, FollowsTheDensity) {
  std::vector<State> states;
  for (int w = 0; w < 2; ++w) states.emplace_back(StateOptions{});
  const auto step = [&](float value, std::size_t every) {
    RoundTable table(1);
    std::vector<std::vector<float>> arrays(2, std::vector<float>(4000));
    for (unsigned w = 0; w < 2; ++w) {
      for (std::size_t i = 0; i < 4000; i += every) arrays[w][i] = value;
      table.join(std::make_unique<Exchange>(states[w], World{.rank = w, .size = 2}, arrays[w], Outcome::scattered));
    }
    table.run();
    return table.report(0).strategy;
  };
  step(1, 1);
  EXPECT_EQ(step(1, 1), Strategy::dense);
  Strategy last = Strategy::dense;
  for (int i = 0; i < 40; ++i) last = step(1, 100);
  EXPECT_EQ(last, Strategy::split);
}

}  // namespace
}  // namespace peel::testing
