// Messages that fit their plan peel completely, but for the few in a thousand that the sizing aims at, whatever the
// pattern of the support: real gradients come in runs, rows and columns.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "draw.h"
#include "peel/peel.h"
#include "plan/mapping.h"
#include "scale.h"

namespace peel::testing {
namespace {

using Take = std::function<void(std::uint64_t)>;

struct Pattern {
  const char* name;
  void (*draw)(std::uint64_t elements, std::uint64_t one_of, SeededDraw&, const Take&);
};

void runs(std::uint64_t length, std::uint64_t elements, std::uint64_t one_of, SeededDraw& draw, const Take& take) {
  for (std::uint64_t i = draw.below(length * one_of); i + length <= elements;
       i += length + draw.below(2 * length * (one_of - 1) + 1)) {
    for (std::uint64_t k = 0; k < length; ++k) take(i + k);
  }
}

void rows(std::uint64_t length, std::uint64_t elements, std::uint64_t one_of, SeededDraw& draw, const Take& take) {
  for (std::uint64_t row = 0; row + length <= elements; row += length) {
    if (draw.below(one_of) != 0) continue;
    for (std::uint64_t k = 0; k < length; ++k) take(row + k);
  }
}

const Pattern kPatterns[] = {
    {"uniform", [](auto n, auto d, auto& r, const auto& take) { rows(1, n, d, r, take); }},
    {"runs of 64", [](auto n, auto d, auto& r, const auto& take) { runs(64, n, d, r, take); }},
    {"rows of 64", [](auto n, auto d, auto& r, const auto& take) { rows(64, n, d, r, take); }},
    {"rows of 768", [](auto n, auto d, auto& r, const auto& take) { rows(768, n, d, r, take); }},
    {"runs of 1000", [](auto n, auto d, auto& r, const auto& take) { runs(1000, n, d, r, take); }},
    {"stride of 4096",
     [](auto n, auto d, auto& r, const auto& take) {
       const std::uint64_t first = r.below(4096);
       for (std::uint64_t i = 0; i < n; ++i) {
         if ((i + first) % 4096 < 4096 / d) take(i);
       }
     }},
};

// Whether a message of exactly as many items as its plan expects loses one.
bool loses(const Pattern& pattern, std::uint64_t elements, std::uint64_t one_of, std::uint64_t seed,
           Workspace& workspace, Index index = Index::bitmap) {
  SeededDraw draw(seed);
  std::vector<float> x(elements), out(elements);
  std::uint64_t items = 0;
  pattern.draw(elements, one_of, draw, [&](std::uint64_t e) {
    x[e] = static_cast<float>(1 + e % 1000);
    ++items;
  });
  const Plan plan = Plan::make({.elements = elements,
                                .expected_items = items,
                                .codec = Codec::sketch,
                                .index = index,
                                .seed = detail::mix64(seed)});
  Message message;
  encode(plan, x, message, {.workspace = &workspace});
  const Recovery r = decode(plan, message, out, {.execution = {.workspace = &workspace}});
  EXPECT_GE(r.items, items);
  if (index == Index::bitmap) {
    EXPECT_EQ(r.items, items);
  }
  if (r.lost == 0) {
    EXPECT_EQ(out, x);
  }
  return r.lost != 0;
}

TEST(LosslessRate, IsAtLeast99PercentForEveryPatternAndDensity) {
  const std::uint64_t messages = scaled(40, 4);
  Workspace workspace;
  for (const Pattern& pattern : kPatterns) {
    std::uint64_t lost = 0, all = 0;
    for (const std::uint64_t one_of : {3ull, 10ull, 100ull, 1000ull}) {
      // The sparser, the longer, so that there are some blocks of items.
      const std::uint64_t elements = scaled(one_of <= 10 ? 1 << 17 : 1 << 19, 1 << 17);
      for (std::uint64_t seed = 1; seed <= messages; ++seed, ++all) {
        lost += loses(pattern, elements, one_of, seed * 1000 + one_of, workspace);
      }
    }
    EXPECT_LE(lost * 100, all) << pattern.name;
  }
}

// A filter's false positives come in clusters where the items do, and take cells of the sketch.
TEST(LosslessRate, HoldsUnderABloomFilterToo) {
  const std::uint64_t messages = large_scale() ? 400 : scaled(25, 2);
  Workspace workspace;
  std::uint64_t lost = 0, all = 0;
  for (const Pattern& pattern : kPatterns) {
    if (std::string_view(pattern.name) == "stride of 4096") continue;  // at most one of 4096, which are single items
    std::uint64_t lost_here = 0, all_here = 0;
    for (const std::uint64_t one_of : {100ull, 300ull, 1000ull}) {
      for (std::uint64_t seed = 1; seed <= messages; ++seed, ++all_here) {
        lost_here += loses(pattern, 1 << 19, one_of, seed * 1000 + one_of, workspace, Index::bloom);
      }
    }
    EXPECT_LE(lost_here * 50, all_here) << pattern.name;
    lost += lost_here;
    all += all_here;
  }
  EXPECT_LE(lost * 200, all) << lost << " of " << all;
}

TEST(LosslessRate, HoldsForFewItemsToo) {
  Workspace workspace;
  std::uint64_t lost = 0, all = 0;
  for (const std::uint64_t elements : {10ull, 100ull, 1000ull, 5000ull}) {
    for (const std::uint64_t one_of : {1ull, 2ull, 10ull, 100ull}) {
      for (std::uint64_t seed = 1; seed <= scaled(100, 20); ++seed, ++all) {
        lost += loses(kPatterns[0], elements, one_of, seed * 7919 + one_of, workspace);
      }
    }
  }
  EXPECT_LE(lost * 100, all) << lost << " of " << all;
}

}  // namespace
}  // namespace peel::testing
