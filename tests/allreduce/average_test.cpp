// Averages: an exchange that averages gives the bits of one that sums what was multiplied before.
#include "allreduce/average.h"

#include <gtest/gtest.h>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "allreduce/known_gradients.h"
#include "allreduce/round_table.h"
#include "allreduce/workers.h"
#include "codec/values.h"
#include "peel/exchange.h"

namespace peel::testing {
namespace {

constexpr ElementType kFloats[] = {ElementType::float32, ElementType::float64, ElementType::float16,
                                   ElementType::bfloat16};

// One value at a time, by the conversions of the reference.
std::vector<std::byte> multiplied(std::vector<std::byte> array, ElementType type, double factor) {
  detail::with_element(type, [&](auto t) {
    using T = decltype(t);
    for (std::size_t i = 0; i < array.size() / sizeof(T); ++i) {
      T value;
      std::memcpy(&value, array.data() + i * sizeof(T), sizeof(T));
      if constexpr (std::is_same_v<T, double>) {
        value *= factor;
      } else if constexpr (!std::is_integral_v<T>) {
        const float product = static_cast<float>(detail::widen(value)) * static_cast<float>(factor);
        value = detail::narrow<T>(static_cast<double>(product));
      }
      std::memcpy(array.data() + i * sizeof(T), &value, sizeof(T));
    }
  });
  return array;
}

TEST(Multiply, AgreesWithTheReferenceForEvery16BitNumber) {
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  const auto* begin = reinterpret_cast<const std::byte*>(all.data());
  const std::vector<std::byte> numbers(begin, begin + all.size() * 2);
  for (const ElementType type : {ElementType::float16, ElementType::bfloat16}) {
    for (const double factor : {0.5, 1.0 / 3, 1.0 / 7, 0.25, 1.0 / 64, 1.5, 4096.0}) {
      std::vector<std::byte> got(numbers.size());
      detail::multiply(type, factor, numbers, got.data());
      const std::vector<std::byte> expected = multiplied(numbers, type, factor);
      for (std::size_t i = 0; i < all.size(); ++i) {
        std::uint16_t a = 0;
        std::uint16_t b = 0;
        std::memcpy(&a, got.data() + 2 * i, 2);
        std::memcpy(&b, expected.data() + 2 * i, 2);
        const std::uint16_t infinity = type == ElementType::float16 ? 0x7C00 : 0x7F80;
        if ((a & 0x7FFF) > infinity && (b & 0x7FFF) > infinity) continue;  // NaN, whichever
        ASSERT_EQ(a, b) << name(type) << " " << i << " times " << factor;
      }
    }
  }
}

// Sums arrays as they are given, and returns what each worker ends with.
std::vector<std::vector<std::byte>> reduce(const StateOptions& options, Outcome outcome, ElementType type,
                                           const std::vector<std::vector<std::byte>>& given) {
  const auto size = static_cast<unsigned>(given.size());
  std::vector<State> states;
  for (unsigned w = 0; w < size; ++w) states.emplace_back(options);
  std::vector<std::vector<std::byte>> results;
  for (int step = 0; step < 3; ++step) {
    RoundTable table(static_cast<std::uint64_t>(step));
    std::vector<Array> arrays;
    for (const std::vector<std::byte>& one : given) arrays.emplace_back(one, type);
    for (unsigned w = 0; w < size; ++w) {
      const World world{.rank = w, .size = size, .link = kSlowLink};
      table.join(std::make_unique<Exchange>(states[w], world, arrays[w].view(), outcome));
    }
    table.run();
    for (unsigned w = 0; w < size; ++w) {
      demand(!table.error(w), table.error(w) ? table.error(w)->what() : "");
      results.push_back(arrays[w].bytes());
    }
  }
  return results;
}

std::vector<std::vector<std::byte>> draw_arrays(unsigned workers, std::uint64_t elements, ElementType type,
                                                double density) {
  std::mt19937_64 random(elements + workers);
  std::normal_distribution<double> values;
  std::uniform_real_distribution<double> coin;
  std::vector<std::vector<std::byte>> arrays(workers, std::vector<std::byte>(elements * size_of(type)));
  detail::with_element(type, [&](auto t) {
    using T = decltype(t);
    for (std::vector<std::byte>& array : arrays) {
      for (std::uint64_t i = 0; i < elements; ++i) {
        const T value = coin(random) < density ? detail::narrow<T>(values(random)) : T{};
        std::memcpy(array.data() + i * sizeof(T), &value, sizeof(T));
      }
    }
  });
  return arrays;
}

class Average : public ::testing::TestWithParam<Strategy> {};
INSTANTIATE_TEST_SUITE_P(Strategies, Average,
                         ::testing::Values(Strategy::automatic, Strategy::dense, Strategy::packed, Strategy::sketch,
                                           Strategy::split, Strategy::gather),
                         [](const auto& tested) { return std::string(name(tested.param)); });

TEST_P(Average, HasTheBitsOfASumOfProducts) {
  for (const ElementType type : kFloats) {
    for (const unsigned workers : {1u, 2u, 3u, 7u}) {
      for (const double density : {0.01, 0.6}) {
        const auto own = draw_arrays(workers, 3001, type, density);
        std::vector<std::vector<std::byte>> products;
        for (const auto& one : own) products.push_back(multiplied(one, type, 1.0 / workers));
        const StateOptions sum{.strategy = GetParam(), .chunk_bytes = 4096};
        StateOptions average = sum;
        average.average = true;
        EXPECT_EQ(reduce(average, Outcome::everywhere, type, own), reduce(sum, Outcome::everywhere, type, products))
            << name(type) << ", " << workers << " workers, density " << density;
      }
    }
  }
}

TEST(Average, OfAReduceScatterLeavesTheRestAsItWas) {
  for (const Strategy strategy : {Strategy::dense, Strategy::split}) {
    const auto own = draw_arrays(3, 1000, ElementType::float32, 0.3);
    std::vector<std::vector<std::byte>> products;
    for (const auto& one : own) products.push_back(multiplied(one, ElementType::float32, 1.0 / 3));
    const StateOptions sum{.strategy = strategy, .chunk_bytes = 512};
    StateOptions average = sum;
    average.average = true;
    const auto got = reduce(average, Outcome::scattered, ElementType::float32, own);
    const auto expected = reduce(sum, Outcome::scattered, ElementType::float32, products);
    for (std::size_t r = 0; r < got.size(); ++r) {
      const auto w = static_cast<unsigned>(r % 3);
      const Share share = share_of(1000, 3, w);
      for (std::uint64_t i = 0; i < got[r].size(); ++i) {
        const bool mine = i / 4 >= share.begin && i / 4 < share.end;
        ASSERT_EQ(got[r][i], mine ? expected[r][i] : own[w][i]) << name(strategy) << ", worker " << w << ", byte " << i;
      }
    }
  }
}

TEST(Average, OfASparseGradientIsThatOfItsValues) {
  constexpr std::uint32_t kGrain = 4;
  std::vector<State> states;
  std::vector<Sparse> own(3), sums(3);
  RoundTable table(1);
  for (unsigned w = 0; w < 3; ++w) {
    states.emplace_back(StateOptions{.grain = kGrain, .elements = 400, .average = true});
    const std::vector<float> values = {1, 2, 3, 4, 0.1F, 0.2F, 0.3F, static_cast<float>(w)};
    const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
    own[w].type = ElementType::float32;
    own[w].items = {3, 50 + w};
    own[w].values.assign(bytes, bytes + values.size() * 4);
  }
  for (unsigned w = 0; w < 3; ++w) {
    table.join(std::make_unique<Exchange>(states[w], World{.rank = w, .size = 3, .link = kSlowLink},
                                          ConstSparse(own[w]), sums[w]));
  }
  table.run();
  const float third = 1.0F / 3;
  for (unsigned w = 0; w < 3; ++w) {
    ASSERT_FALSE(table.error(w));
    ASSERT_EQ(sums[w].items, (std::vector<std::uint64_t>{3, 50, 51, 52}));
    std::vector<float> values(sums[w].values.size() / 4);
    std::memcpy(values.data(), sums[w].values.data(), sums[w].values.size());
    const float one = 1 * third;
    EXPECT_EQ(values[0], static_cast<float>(3.0 * one));
    EXPECT_EQ(values[4], 0.1F * third);
    EXPECT_EQ(values[15], 2 * third);
    EXPECT_EQ(std::memcmp(own[w].values.data(), "\0\0\x80\x3f", 4), 0) << "what was given must stay as it was";
  }
}

// Two workers with ones; what each ends with, and what went wrong.
struct Pair {
  explicit Pair(const StateOptions& options) {
    for (unsigned w = 0; w < 2; ++w) states.emplace_back(options);
  }
  std::vector<std::vector<float>> step(std::size_t first, std::size_t second) {
    std::vector<std::vector<float>> arrays = {std::vector<float>(first, 1), std::vector<float>(second, 1)};
    RoundTable table(first);
    for (unsigned w = 0; w < 2; ++w) {
      table.join(std::make_unique<Exchange>(states[w], World{.rank = w, .size = 2, .link = kSlowLink},
                                            std::span<float>(arrays[w])));
    }
    table.run();
    failed = table.error(0).has_value() && table.error(1).has_value();
    return arrays;
  }
  std::vector<State> states;
  bool failed = false;
};

TEST(Average, OfWorkersThatChoseDifferentlyIsTakenOnce) {
  for (const Strategy strategy : {Strategy::automatic, Strategy::dense}) {
    const StateOptions options{.strategy = strategy, .average = true};
    Pair pair(options);
    for (int step = 0; step < 3; ++step) pair.step(5000, 5000);
    pair.states[1] = State(options);
    for (int step = 0; step < 3; ++step) {
      for (const std::vector<float>& array : pair.step(5000, 5000)) EXPECT_EQ(array, std::vector<float>(5000, 1));
    }
  }
}

TEST(Average, IsTakenOnceWhereCodingIsSwitchedOff) {
  ASSERT_EQ(setenv("PEEL_DISABLE", "1", 1), 0);
  Pair pair({.average = true});
  for (int step = 0; step < 3; ++step) {
    for (const std::vector<float>& array : pair.step(300, 300)) EXPECT_EQ(array, std::vector<float>(300, 1));
  }
  unsetenv("PEEL_DISABLE");
}

TEST(Average, OfArraysThatDifferLeavesThemAsTheyWere) {
  Pair pair({.strategy = Strategy::dense, .average = true});
  const auto arrays = pair.step(100, 101);
  EXPECT_TRUE(pair.failed);
  EXPECT_EQ(arrays[0], std::vector<float>(100, 1));
  EXPECT_EQ(arrays[1], std::vector<float>(101, 1));
}

#if defined(__SSE__)
TEST(Multiply, KeepsSmallHalvesWhereTheProcessorTakesSubnormalNumbersForZero) {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040);
  std::vector<float16> values(64, float16{0x0155});  // 2^-24 times 341
  const auto* from = reinterpret_cast<const std::byte*>(values.data());
  std::vector<float16> products(values.size());
  detail::multiply(ElementType::float16, 0.5, {from, values.size() * 2}, reinterpret_cast<std::byte*>(products.data()));
  _mm_setcsr(before);
  for (const float16 product : products) EXPECT_EQ(product.bits, 0x00AA);  // 170.5, to even
}
#endif

TEST(Average, OfIntegersIsRefused) {
  std::vector<State> states;
  RoundTable table(1);
  std::vector<Array> arrays;
  for (unsigned w = 0; w < 2; ++w) arrays.emplace_back(std::vector<std::byte>(40), ElementType::int32);
  for (unsigned w = 0; w < 2; ++w) states.emplace_back(StateOptions{.average = true});
  for (unsigned w = 0; w < 2; ++w) {
    table.join(std::make_unique<Exchange>(states[w], World{.rank = w, .size = 2, .link = kSlowLink}, arrays[w].view()));
  }
  table.run();
  for (unsigned w = 0; w < 2; ++w) {
    ASSERT_TRUE(table.error(w));
    EXPECT_NE(std::string(table.error(w)->what()).find("integers have no average"), std::string::npos);
  }
}

}  // namespace
}  // namespace peel::testing
