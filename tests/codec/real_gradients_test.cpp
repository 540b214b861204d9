// Real gradients, with magnitudes from 1e-13 to 1e-2 in one array: what the codecs promise of arbitrary values. The
// data and where it comes from: tests/data/README.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "peel/peel.h"

namespace peel::testing {
namespace {

constexpr std::size_t kWorkers = 4, kElements = 2048;
const char* const kModels[] = {"ncf", "lstm", "bert", "vgg"};

template <typename T>
std::vector<T> read(const std::string& name) {
  std::ifstream file(std::string(PEEL_TEST_DIR) + "/data/" + name, std::ios::binary | std::ios::ate);
  EXPECT_TRUE(file.good()) << name;
  std::vector<T> values(static_cast<std::size_t>(std::max<std::streamoff>(file.tellg(), 0)) / sizeof(T));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(T)));
  return values;
}

using Gradients = std::vector<std::vector<float>>;  // of each worker

Gradients gradients_of(const std::string& model) {
  const std::vector<float> all = read<float>(model + ".values.f32");
  EXPECT_EQ(all.size(), kWorkers * kElements);
  Gradients workers;
  for (std::size_t w = 0; w < kWorkers; ++w)
    workers.emplace_back(all.begin() + w * kElements, all.begin() + (w + 1) * kElements);
  return workers;
}

// All four models behind one another: the widest spread of magnitudes.
Gradients all_models() {
  Gradients workers(kWorkers);
  for (const char* model : kModels) {
    const Gradients part = gradients_of(model);
    for (std::size_t w = 0; w < kWorkers; ++w) workers[w].insert(workers[w].end(), part[w].begin(), part[w].end());
  }
  return workers;
}

std::uint64_t count_union(const Gradients& workers, std::size_t count) {
  std::uint64_t items = 0;
  for (std::size_t i = 0; i < workers[0].size(); ++i) {
    items += std::any_of(workers.begin(), workers.begin() + static_cast<std::ptrdiff_t>(count),
                         [&](const auto& x) { return x[i] != 0; });
  }
  return items;
}

std::vector<float> sum_through(const Plan& plan, const Gradients& workers, std::size_t count, Backend backend) {
  Message sum(plan);
  for (std::size_t w = 0; w < count; ++w) {
    Message mine;
    encode(plan, workers[w], mine, {.backend = backend});
    merge(plan, sum, mine, {.backend = backend});
  }
  std::vector<float> out(workers[0].size());
  EXPECT_EQ(decode(plan, sum, out, {.execution = {.backend = backend}}).lost, 0u) << plan.describe();
  return out;
}

TEST(RealGradients, SpanTenOrdersOfMagnitude) {
  float least = 1, most = 0;
  for (const std::vector<float>& x : all_models()) {
    for (const float value : x) {
      if (value != 0) least = std::min(least, std::fabs(value));
      most = std::max(most, std::fabs(value));
    }
  }
  EXPECT_LT(least, 1e-12f);
  EXPECT_GT(most / least, 1e9f);
}

TEST(RealGradients, PackedOfTwoWorkersIsTheDenseSumBitForBit) {
  const Gradients x = all_models();
  for (const Backend backend : available_backends()) {
    for (const std::uint32_t grain : {1u, 64u}) {
      for (const Index index : {Index::bitmap, Index::bloom, Index::list}) {
        const Plan plan = Plan::make({.elements = x[0].size(),
                                      .expected_items = count_union(x, 2),
                                      .workers = 2,
                                      .grain = grain,
                                      .index = index});
        const std::vector<float> out = sum_through(plan, x, 2, backend);
        for (std::size_t i = 0; i < out.size(); ++i) {
          const float dense = x[0][i] + x[1][i];
          ASSERT_EQ(std::memcmp(&out[i], &dense, sizeof dense), 0) << i << ": " << out[i] << " is not " << dense;
        }
      }
    }
  }
}

// Fixed cells: within the plan's error bound, and the rounding to float32 at the end.
TEST(RealGradients, FixedCellsKeepTheirErrorBound) {
  for (const Backend backend : available_backends()) {
    for (const char* model : kModels) {
      const Gradients x = gradients_of(model);
      float largest = 0;
      for (const auto& worker : x) {
        for (const float value : worker) largest = std::max(largest, std::fabs(value));
      }
      for (const CellType cells : {CellType::fixed32, CellType::fixed64}) {
        for (const Codec codec : {Codec::sketch, Codec::packed}) {
          const Plan plan = Plan::make({.elements = kElements,
                                        .expected_items = std::max<std::uint64_t>(count_union(x, kWorkers), 1),
                                        .workers = kWorkers,
                                        .codec = codec,
                                        .cells = cells,
                                        .index = Index::bitmap,
                                        .scale = fit_scale(largest, cells, kWorkers)});
          const std::vector<float> out = sum_through(plan, x, kWorkers, backend);
          double worst = 0;
          for (std::size_t i = 0; i < kElements; ++i) {
            long double exact = 0;
            for (const auto& worker : x) exact += worker[i];
            const double half_ulp = 0.5 * (std::nextafter(std::fabs(out[i]), INFINITY) - std::fabs(out[i]));
            const auto off = static_cast<double>(std::fabs(static_cast<long double>(out[i]) - exact));
            ASSERT_LE(off, plan.error_bound() + half_ulp * (1 + 1e-6)) << model << ", element " << i;
            worst = std::max(worst, off);
          }
          if (cells == CellType::fixed32) {
            EXPECT_GT(worst, plan.error_bound() / 100) << "a bound that nothing comes near says nothing";
          }
        }
      }
    }
  }
}

// Float cells promise no bound; on the magnitudes of one model they stay within what float32 sums lose.
TEST(RealGradients, FloatCellsAreCloseButNotExact) {
  for (const Backend backend : available_backends()) {
    const Gradients x = gradients_of("vgg");
    const Plan plan = Plan::make({.elements = kElements,
                                  .expected_items = count_union(x, kWorkers),
                                  .workers = kWorkers,
                                  .codec = Codec::sketch,
                                  .cells = CellType::float32,
                                  .index = Index::bitmap});
    const std::vector<float> out = sum_through(plan, x, kWorkers, backend);
    for (std::size_t i = 0; i < kElements; ++i) {
      double exact = 0;
      for (const auto& worker : x) exact += worker[i];
      ASSERT_NEAR(out[i], exact, 1e-7);  // the largest is 1e-2: its last bits spill over
    }
  }
}

TEST(RealGradients, EmbeddingRowsAreFound) {
  const std::vector<std::uint64_t> support = read<std::uint64_t>("ncf.union.bits");
  const std::uint64_t elements = support.size() * 64;
  const GrainChoice choice = best_grain(std::span(support), {.elements = elements});
  EXPECT_EQ(choice.grain, 64u);
  EXPECT_NE(choice.phase, 0u) << "the cut-out does not start with a row";
  const Plan plain =
      Plan::make({.elements = elements, .expected_items = choice.expected_items * 64, .index = Index::bitmap});
  EXPECT_LT(choice.message_bytes, plain.lower_bound_bytes()) << "structure beats the bound of supports without it";
}

}  // namespace
}  // namespace peel::testing
