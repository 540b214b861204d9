// What each strategy sends, and in how many rounds: the formulas that they are chosen by, measured.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "allreduce/round_table.h"
#include "allreduce/workers.h"
#include "draw.h"
#include "scale.h"

namespace peel::testing {
namespace {

constexpr std::uint64_t kElements = 1 << 17;

// A support that is the same however many workers share it: who has an element is drawn, `overlap` have it at least.
using Arrays = std::vector<std::vector<float>>;

Arrays draw_arrays(unsigned workers, double union_density, unsigned overlap, std::uint64_t row = 1) {
  SeededDraw support(5), owners(6);
  Arrays arrays(workers, std::vector<float>(kElements, 0.0f));
  for (std::uint64_t i = 0; i < kElements; i += row) {
    if (static_cast<double>(support.below(1u << 20)) >= union_density * (1u << 20)) continue;
    const std::uint64_t first = owners.below(workers);
    for (unsigned k = 0; k < std::min(overlap, workers); ++k) {
      for (std::uint64_t e = i; e < i + row; ++e) arrays[(first + k) % workers][e] = 1.0f;
    }
  }
  return arrays;
}

std::uint64_t nonzeros(const std::vector<float>& x) {
  return static_cast<std::uint64_t>(std::count_if(x.begin(), x.end(), [](float value) { return value != 0; }));
}

// The reports of the last of a few steps: the steady state. A switch only adds integers and ORs.
enum class Over : std::uint8_t { network, a_switch };
std::vector<Report> reduce(const Arrays& arrays, const StateOptions& options, int steps = 4,
                           Over over = Over::network) {
  const auto workers = static_cast<unsigned>(arrays.size());
  std::vector<State> states;
  for (unsigned w = 0; w < workers; ++w) states.emplace_back(options);
  std::vector<Report> reports;
  for (int step = 0; step < steps; ++step) {
    Arrays sums = arrays;
    RoundTable table(static_cast<std::uint64_t>(step));
    for (unsigned w = 0; w < workers; ++w) {
      World world{.rank = w, .size = workers, .link = kSlowLink};
      world.moves_buffers = over == Over::network;
      world.sums = over == Over::network ? SumTypes::all() : SumTypes::integers();
      table.join(std::make_unique<Exchange>(states[w], world, sums[w]));
    }
    table.run();
    reports.clear();
    for (unsigned w = 0; w < workers; ++w) {
      EXPECT_FALSE(table.error(w));
      reports.push_back(table.report(w));
    }
  }
  return reports;
}

double share(unsigned workers) { return (workers - 1.0) / workers; }

constexpr unsigned kWorkerCounts[] = {2, 3, 4, 8, 16, 32, 64};

TEST(BytesSent, PackedAndSketchDoNotGrowWithTheWorkers) {
  for (const Strategy strategy : {Strategy::packed, Strategy::sketch}) {
    for (const double density : {0.01, 0.2}) {
      double least = 1e300, most = 0;
      for (const unsigned workers : kWorkerCounts) {
        if (small_scale() && workers > 16) continue;
        const Report report =
            reduce(draw_arrays(workers, density, 2), {.strategy = strategy, .grain = 1, .index = Index::bitmap})[0];
        const double normal = static_cast<double>(report.bytes_sent) / share(workers);
        least = std::min(least, normal);
        most = std::max(most, normal);
      }
      EXPECT_LT(most, 1.05 * least) << name(strategy) << " at " << density;
    }
  }
}

TEST(BytesSent, PackedIsTwiceTheIndexAndTheUnion) {
  for (const double density : {0.01, 0.3, 0.9}) {
    const Arrays arrays = draw_arrays(4, density, 2);
    const Report report = reduce(arrays, {.strategy = Strategy::packed, .grain = 1, .index = Index::bitmap})[0];
    const double index = kElements / 8.0;
    const double values = 4.0 * static_cast<double>(report.items);
    EXPECT_LT(static_cast<double>(report.bytes_sent), 1.05 * 2 * share(4) * (index + values)) << density;
    EXPECT_GT(static_cast<double>(report.bytes_sent), 0.99 * 2 * share(4) * (index + values)) << density;
  }
}

// Bits that the positions of a support take, without structure.
double entropy_bytes(double nonzero) {
  const double d = nonzero / kElements;
  if (d <= 0 || d >= 1) return 0;
  return kElements * (-d * std::log2(d) - (1 - d) * std::log2(1 - d)) / 8;
}

// The formula of the architecture: (W-1)/W (n + u + their indexes), and 10%. A message's header and its last, half
// empty words count beside it: there are 2 (W-1) of them in each chunk.
TEST(BytesSent, SplitStaysBelowItsFormula) {
  for (const double density : {0.01, 0.05, 0.3, 0.7, 1.0}) {
    for (const unsigned workers : kWorkerCounts) {
      if (small_scale() && workers > 16) continue;
      const Arrays arrays = draw_arrays(workers, density, 2);
      const std::vector<Report> reports = reduce(arrays, {.strategy = Strategy::split, .grain = 1});
      double sent = 0, n = 0;
      for (unsigned w = 0; w < workers; ++w) {
        sent += static_cast<double>(reports[w].bytes_sent) / workers;
        n += static_cast<double>(nonzeros(arrays[w])) / workers;
      }
      const double u = static_cast<double>(reports[0].items);
      // Above a fifth a list saves next to nothing, and the index is a bitmap.
      const auto index = [](double items) {
        return items > 0.2 * kElements && items < kElements ? kElements / 8.0 : entropy_bytes(items);
      };
      const double formula = share(workers) * (4 * n + index(n) + 4 * u + index(u));
      const double messages = 2.0 * (workers - 1) * reports[0].chunks;
      EXPECT_LT(sent, 1.1 * formula + 56 * messages + 256) << workers << " workers at " << density;
      EXPECT_GT(sent, 0.9 * formula) << "the formula is no bound, it is what has to be sent";
    }
  }
}

TEST(BytesSent, GatherStaysBelowItsFormula) {
  for (const double density : {0.001, 0.05}) {
    for (const unsigned workers : {2u, 4u, 16u}) {
      const Arrays arrays = draw_arrays(workers, density, 1);
      const std::vector<Report> reports = reduce(arrays, {.strategy = Strategy::gather, .grain = 1});
      for (unsigned w = 0; w < workers; ++w) {
        const auto n = static_cast<double>(nonzeros(arrays[w]));
        const double formula = (workers - 1) * (4 * n + entropy_bytes(n));
        EXPECT_LT(static_cast<double>(reports[w].bytes_sent), 1.1 * formula + 56.0 * workers * reports[w].chunks + 256)
            << workers << " workers at " << density;
      }
    }
  }
}

// Rows of 64 in the sparse view, the same union whoever has how much of it.
TEST(BytesSent, TheSparseViewFollowsTheUnionAndNotTheWorkers) {
  constexpr std::uint64_t kRows = 4096, kUnion = 512;
  double least = 1e300, most = 0;
  for (const unsigned workers : kWorkerCounts) {
    if (small_scale() && workers > 16) continue;
    std::vector<State> states;
    for (unsigned w = 0; w < workers; ++w) states.emplace_back(StateOptions{.grain = 64, .elements = kRows * 64});
    // Everybody has half of the union: the even or the odd ones.
    std::vector<std::vector<std::uint64_t>> items(workers);
    for (unsigned w = 0; w < workers; ++w) {
      for (std::uint64_t i = 0; i < kUnion / 2; ++i) items[w].push_back((i * 2 + w % 2) * (kRows / kUnion));
    }
    const std::vector<float> values(kUnion / 2 * 64, 1.0f);
    double sent = 0;
    for (int step = 0; step < 3; ++step) {
      std::vector<Sparse> sums(workers);
      RoundTable table(1);
      for (unsigned w = 0; w < workers; ++w) {
        table.join(std::make_unique<Exchange>(states[w], World{.rank = w, .size = workers, .link = kSlowLink},
                                              ConstSparse(items[w], values.data(), ElementType::float32), sums[w]));
      }
      table.run();
      sent = 0;
      for (unsigned w = 0; w < workers; ++w) {
        ASSERT_EQ(sums[w].items.size(), kUnion);
        ASSERT_EQ(sums[w].values_as<float>()[0], static_cast<float>(workers / 2 + workers % 2));
        sent += static_cast<double>(table.report(w).bytes_sent) / workers;
      }
    }
    // Two workers gather, which is less than the formula of split; so they set no lower bound.
    if (workers > 2) least = std::min(least, sent / share(workers));
    most = std::max(most, sent / share(workers));
  }
  EXPECT_LT(most, 1.1 * least);
  EXPECT_LT(most, 1.1 * 1.5 * kUnion * 64 * sizeof(float));
}

TEST(Rounds, OfEachStrategyInTheSteadyState) {
  const Arrays arrays = draw_arrays(4, 0.05, 2);
  struct Promise {
    Strategy strategy;
    std::uint32_t rounds;
  };
  for (const Promise& promise :
       {Promise{Strategy::dense, 1}, Promise{Strategy::packed, 2}, Promise{Strategy::sketch, 1},
        Promise{Strategy::split, 2}, Promise{Strategy::gather, 1}}) {
    EXPECT_EQ(reduce(arrays, {.strategy = promise.strategy})[2].rounds, promise.rounds) << name(promise.strategy);
    EXPECT_EQ(reduce(arrays, {.strategy = promise.strategy, .chunk_bytes = 65'536})[1].rounds, promise.rounds)
        << name(promise.strategy) << ", several chunks";
  }
  EXPECT_EQ(reduce(arrays, {.strategy = Strategy::packed}, 1)[0].rounds, 2u) << "the first step knows enough";
  EXPECT_EQ(reduce(arrays, {.strategy = Strategy::split}, 1)[0].rounds, 2u) << "the first step knows enough";
}

// Rows of 64 make a grain of 64, and so an index of a 64th, without being told.
TEST(Grain, IsFoundAndPaysOff) {
  for (const Strategy strategy : {Strategy::packed, Strategy::sketch, Strategy::split, Strategy::gather}) {
    const Arrays arrays = draw_arrays(4, 0.03, 2, 64);
    const Report found = reduce(arrays, {.strategy = strategy})[0];
    const Report without = reduce(arrays, {.strategy = strategy, .grain = 1})[0];
    EXPECT_EQ(found.grain, 64u) << name(strategy);
    EXPECT_LT(found.bytes_sent, without.bytes_sent) << name(strategy);
  }
}

// A bitmap of pairs is half of a bitmap, but a filter of single elements is less than either.
TEST(Grain, OfFewElementsThatLieAnywhereIsOne) {
  const Arrays arrays = draw_arrays(4, 0.01, 2);
  for (const Over over : {Over::network, Over::a_switch}) {
    EXPECT_EQ(reduce(arrays, {.strategy = Strategy::sketch}, 4, over)[0].grain, 1u);
    const Report found = reduce(arrays, {.strategy = Strategy::packed}, 4, over)[0];
    EXPECT_EQ(found.grain, 1u);
    EXPECT_LT(found.bytes_sent, reduce(arrays, {.strategy = Strategy::packed, .grain = 2}, 4, over)[0].bytes_sent);
  }
}

// Rows that begin anywhere: a grain that missed their boundaries would touch two of them for each.
TEST(Grain, FallsOnTheRows) {
  for (const Strategy strategy : {Strategy::packed, Strategy::split}) {
    Arrays aligned = draw_arrays(4, 0.03, 2, 64);
    Arrays shifted = aligned;
    for (auto& x : shifted) std::rotate(x.begin(), x.end() - 7, x.end());
    const Report a = reduce(aligned, {.strategy = strategy})[0];
    const Report b = reduce(shifted, {.strategy = strategy})[0];
    EXPECT_EQ(b.grain, 64u) << name(strategy);
    EXPECT_NEAR(static_cast<double>(b.items), static_cast<double>(a.items), 2) << name(strategy);
  }
}

// Nor do the shares of a reduce-scatter begin with a row: grains are counted from the start of the whole array.
TEST(Grain, FallsOnTheRowsOfAShare) {
  const Arrays arrays = draw_arrays(3, 0.03, 1, 64);
  std::vector<State> states;
  for (int w = 0; w < 3; ++w) states.emplace_back(StateOptions{.strategy = Strategy::split, .grain = 64});
  Arrays sums = arrays;
  RoundTable table(1);
  for (unsigned w = 0; w < 3; ++w) {
    const World world{.rank = w, .size = 3, .link = kSlowLink};
    table.join(std::make_unique<Exchange>(states[w], world, sums[w], Outcome::scattered));
  }
  table.run();
  std::uint64_t items = 0, rows = 0;
  for (unsigned w = 0; w < 3; ++w) {
    items += table.report(w).items;
    rows += nonzeros(arrays[w]) / 64;
  }
  EXPECT_LE(items, rows + 3) << "a row that two shares cut in two counts twice, and no other";
}

}  // namespace
}  // namespace peel::testing
