// All-reduces of arrays in device memory: every strategy and type, sums known exactly, over steps that jump in density
// and in shape.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "allreduce/average.h"
#include "allreduce/choice.h"
#include "allreduce/history.h"
#include "codec/message_header.h"
#include "cuda/device_world.h"
#include "scale.h"

namespace peel::testing {
namespace {

class DeviceExchange : public ::testing::TestWithParam<Strategy> {};

TEST_P(DeviceExchange, EveryTypeAndPattern) {
  SeededDraw random(7);
  for (unsigned t = 0; t < 8; ++t) {
    const auto type = static_cast<ElementType>(t);
    for (const unsigned workers : {2u, 3u}) {
      DeviceWorld world(workers, {.strategy = GetParam()});
      for (const Pattern pattern : kPatterns) {
        const auto elements = random.pick<std::uint64_t>({1, 63, 4096, 4097, 30'011, scaled(100'000, 10'007)});
        if (small_scale() && !random.one_in(3)) continue;
        const KnownStep step = KnownStep::draw(
            {.elements = elements, .type = type, .pattern = pattern, .density = random.pick({0.002, 0.05, 0.4})},
            workers, random);
        SCOPED_TRACE(std::string(name(type)) + ", " + std::to_string(elements) + " elements, pattern " +
                     std::to_string(static_cast<int>(pattern)));
        expect_sum(world, step, type, random.below(3));
      }
    }
  }
}

// The same array again and again: rooms and plans are made for what was, and what comes is another thing.
TEST_P(DeviceExchange, JumpingSteps) {
  SeededDraw random(11);
  for (const std::uint64_t chunk_bytes : {std::uint64_t{0}, std::uint64_t{65'536}}) {
    DeviceWorld world(4, {.strategy = GetParam(), .chunk_bytes = chunk_bytes});
    const std::uint64_t elements = scaled(150'007, 40'009);
    for (std::uint64_t i = 0; i < scaled(10, 4); ++i) {
      const Drawing how{.elements = elements,
                        .pattern = random.pick({Pattern::uniform, Pattern::rows, Pattern::runs}),
                        .density = random.pick({0.0005, 0.01, 0.2, 0.9}),
                        .row = 64,
                        .phase = random.below(64)};
      SCOPED_TRACE("step " + std::to_string(i));
      expect_sum(world, KnownStep::draw(how, 4, random), ElementType::float32);
    }
  }
}

// Halves of floats are exact, so the average is half of the sum.
TEST_P(DeviceExchange, Averages) {
  SeededDraw random(13);
  for (const ElementType type : {ElementType::float32, ElementType::bfloat16, ElementType::float16}) {
    DeviceWorld world(2, {.strategy = GetParam(), .average = true});
    for (unsigned i = 0; i < 2; ++i) {
      expect_multiple(world, KnownStep::draw({.elements = 20'000, .type = type, .density = 0.1}, 2, random), 0.5, type);
    }
  }
}

// Values of any kind, `density` of them not zero.
std::vector<std::byte> draw_reals(std::size_t elements, ElementType type, double density, SeededDraw& random) {
  std::vector<std::byte> x(elements * size_of(type));
  detail::with_element(type, [&](auto t) {
    using T = decltype(t);
    for (std::size_t i = 0; i < elements; ++i) {
      if (static_cast<double>(random.below(1u << 20)) >= density * (1u << 20)) continue;
      const T value = detail::narrow<T>(1 + static_cast<double>(random.below(1u << 30)) * 0x1p-27);  // up to 9
      std::memcpy(x.data() + i * sizeof(T), &value, sizeof(T));
    }
  });
  return x;
}

// Thirds are not exact: an average has the bits of a sum of products that the host made.
TEST_P(DeviceExchange, AveragesHaveTheBitsOfASumOfProducts) {
  constexpr unsigned kWorkers = 3;
  constexpr std::size_t kElements = 20'011;
  SeededDraw random(37);
  for (const ElementType type :
       {ElementType::float32, ElementType::float64, ElementType::bfloat16, ElementType::float16}) {
    DeviceWorld averages(kWorkers, {.strategy = GetParam(), .average = true});
    DeviceWorld sums(kWorkers, {.strategy = GetParam()});
    for (unsigned i = 0; i < 3; ++i) {
      SCOPED_TRACE(std::string(name(type)) + ", step " + std::to_string(i));
      std::vector<std::vector<std::byte>> own;
      std::vector<std::vector<std::byte>> products;
      for (unsigned w = 0; w < kWorkers; ++w) {
        own.push_back(draw_reals(kElements, type, i == 1 ? 0.3 : 0.03, random));
        products.emplace_back(own[w].size());
        detail::multiply(type, 1.0 / kWorkers, own[w], products[w].data());
      }
      averages.reduce(own, type);
      sums.reduce(products, type);
      for (unsigned w = 0; w < kWorkers; ++w) {
        ASSERT_FALSE(averages.table().error(w)) << averages.table().error(w)->what();
        const std::vector<std::byte> found = averages.result(w, own[w].size());
        EXPECT_EQ(found, sums.result(w, own[w].size())) << "worker " << w;
        EXPECT_NE(found, std::vector<std::byte>(found.size())) << "all is zero";
      }
    }
  }
}

TEST_P(DeviceExchange, NotFinite) {
  DeviceWorld world(2, {.strategy = GetParam()});
  std::vector<float> a(5000, 0.0F);
  std::vector<float> b(5000, 0.0F);
  a[17] = std::numeric_limits<float>::infinity();
  a[18] = std::numeric_limits<float>::quiet_NaN();
  b[17] = 1;
  b[18] = 2;
  b[4000] = 3;
  for (unsigned step = 0; step < 2; ++step) {
    std::vector<std::vector<std::byte>> x;
    for (const auto& one : {a, b}) {
      x.emplace_back(reinterpret_cast<const std::byte*>(one.data()),
                     reinterpret_cast<const std::byte*>(one.data() + 5000));
    }
    world.reduce(x, ElementType::float32);
    for (unsigned w = 0; w < 2; ++w) {
      ASSERT_FALSE(world.table().error(w)) << world.table().error(w)->what();
      std::vector<float> out(5000);
      const auto bytes = world.result(w, 20'000);
      std::memcpy(out.data(), bytes.data(), bytes.size());
      EXPECT_TRUE(std::isinf(out[17]));
      EXPECT_TRUE(std::isnan(out[18]));
      EXPECT_EQ(out[4000], 3);
      EXPECT_EQ(out[0], 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, DeviceExchange, ::testing::ValuesIn(kStrategies),
                         [](const auto& param) { return std::string(name(param.param)); });

TEST(DeviceExchange, AutomaticGoesDense) {
  SeededDraw random(17);
  DeviceWorld world(4, {});
  for (const double density : {0.001, 0.001, 0.001, 0.95, 0.95, 0.95, 0.95}) {
    expect_sum(world, KnownStep::draw({.elements = 300'000, .density = density}, 4, random), ElementType::float32);
  }
  EXPECT_EQ(world.report().strategy, Strategy::dense);
  EXPECT_EQ(world.report().exactness, Exactness::as_dense);
}

TEST(DeviceExchange, FindsTheGrain) {
  SeededDraw random(19);
  for (const Strategy strategy : {Strategy::packed, Strategy::split, Strategy::gather, Strategy::sketch}) {
    DeviceWorld world(2, {.strategy = strategy});
    for (unsigned i = 0; i < 3; ++i) {
      const Drawing how{.elements = 200'000, .pattern = Pattern::rows, .density = 0.05, .row = 64, .phase = 5};
      expect_sum(world, KnownStep::draw(how, 2, random), ElementType::float32);
    }
    EXPECT_EQ(world.report().grain, 64u) << name(strategy);
  }
}

// Items that a sketch of much too few cells loses are exchanged again.
TEST(DeviceExchange, RepairsWhatDoesNotPeel) {
  SeededDraw random(23);
  DeviceWorld world(2, {.strategy = Strategy::sketch, .grain = 1});
  expect_sum(world, KnownStep::draw({.elements = 200'000, .density = 0.001}, 2, random), ElementType::float32);
  expect_sum(world, KnownStep::draw({.elements = 200'000, .density = 0.001}, 2, random), ElementType::float32);
  EXPECT_EQ(world.report().repaired, 0u);
  expect_sum(world, KnownStep::draw({.elements = 200'000, .density = 0.5}, 2, random), ElementType::float32);
  EXPECT_GT(world.report().repaired, 65'536u);
}

// What 40 workers send is too much to be opened at once.
TEST(DeviceExchange, ReadsManyMessagesInPieces) {
  constexpr unsigned kWorkers = 40;
  constexpr std::uint64_t kElements = (1u << 18) + 5;
  ASSERT_EQ(detail::pieces_to_open(kElements, kWorkers, kElements * 4), 2u);
  SeededDraw random(21);
  DeviceWorld world(kWorkers, {.strategy = Strategy::gather, .grain = 1, .chunk_bytes = std::uint64_t{1} << 30});
  expect_sum(world, KnownStep::draw({.elements = kElements, .density = 0.002}, kWorkers, random), ElementType::float32);
}

// A tile that only one worker fills: of all messages only the one to its owner has too little room, and only the owner
// sees that. All must say their lengths again.
TEST(DeviceExchange, OneMessageLacksRoom) {
  constexpr unsigned kWorkers = 4;
  constexpr std::uint64_t kTile = 4096;
  for (const Strategy strategy : {Strategy::split, Strategy::gather}) {
    for (const unsigned owner : {0u, 1u, 3u}) {
      SCOPED_TRACE(std::string(name(strategy)) + ", owner " + std::to_string(owner));
      SeededDraw random(31);
      DeviceWorld world(kWorkers, {.strategy = strategy, .grain = 1});
      for (unsigned i = 0; i < 4; ++i) {
        KnownStep step = KnownStep::draw({.elements = 100'003, .density = 0.001}, kWorkers, random);
        for (std::uint64_t e = owner * kTile; i == 2 && e < (owner + 1) * kTile; ++e) {
          step.sum[e] += 7 - step.workers[2][e];
          step.workers[2][e] = 7;
        }
        expect_sum(world, step);
        std::uint64_t all = 0;
        for (const KnownGradient& worker : step.workers) all += worker.nonzeros();
        for (State& state : world.states()) {  // what split or gather are chosen by
          EXPECT_EQ(state.data().chunks[0].own_items, (all + kWorkers - 1) / kWorkers) << "step " << i;
          EXPECT_EQ(state.data().chunks[0].items, step.union_items(1).size()) << "step " << i;
        }
      }
    }
  }
}

// Doubles that are no fixed-point number: a sketch gives what a dense sum gives, and says why.
TEST(DeviceExchange, ValuesThatFitNoScale) {
  std::string heard;
  DeviceWorld world(2, {.strategy = Strategy::sketch, .log = [&](std::string_view sentence) { heard += sentence; }});
  for (unsigned step = 0; step < 3; ++step) {
    std::vector<double> x(5000, 0.0);
    x[7] = step == 0 ? 1.0 : 1e300;
    x[9] = 1.0;
    const auto* bytes = reinterpret_cast<const std::byte*>(x.data());
    const std::vector<std::byte> own(bytes, bytes + x.size() * sizeof(double));
    world.reduce({own, own}, ElementType::float64);
    for (unsigned w = 0; w < 2; ++w) {
      ASSERT_FALSE(world.table().error(w)) << world.table().error(w)->what();
      std::vector<double> sum(x.size());
      std::memcpy(sum.data(), world.result(w, own.size()).data(), own.size());
      for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(sum[i], 2 * x[i]) << i;
    }
    EXPECT_EQ(world.report().not_finite, 0u);
    EXPECT_EQ(world.report().strategy, step == 0 ? Strategy::sketch : Strategy::packed);
  }
  EXPECT_NE(heard.find("fit no fixed-point scale"), std::string::npos) << heard;
  EXPECT_EQ(heard.find("NaN"), std::string::npos) << heard;
}

TEST(DeviceExchange, NoticesDamage) {
  for (const Strategy strategy : {Strategy::split, Strategy::gather}) {
    SeededDraw random(29);
    DeviceWorld world(2, {.strategy = strategy});
    const KnownStep step = KnownStep::draw({.elements = 100'000, .density = 0.02}, 2, random);
    expect_sum(world, step, ElementType::float32);
    world.table().tamper = [](Collective& done, unsigned worker) {
      if (worker != 1 || done.into.size() < 4 || done.into[0].empty()) return;
      require(cudaMemset(done.into[0].data() + done.into[0].size() / 2, 0x55, 8), "cudaMemset");
      require(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");  // the workers' streams do not wait for it
    };
    world.reduce(dense_of(step, ElementType::float32), ElementType::float32);
    ASSERT_TRUE(world.table().error(1)) << name(strategy);
    EXPECT_EQ(world.table().error(1)->code(), ErrorCode::corrupt_message);
  }
}

// A header that was damaged on its way is noticed before anything is done by it, flags included.
TEST(DeviceExchange, NoticesDamagedHeaders) {
  for (const Strategy strategy : {Strategy::split, Strategy::gather}) {
    for (const std::size_t at : {0u, 2u, 3u, 4u, 5u, 6u, 8u, 18u, 24u}) {
      SeededDraw random(31);
      DeviceWorld world(2, {.strategy = strategy});
      const KnownStep step = KnownStep::draw({.elements = 20'000, .density = 0.02}, 2, random);
      expect_sum(world, step, ElementType::float32);
      world.table().tamper = [&](Collective& done, unsigned worker) {
        if (worker != 1 || done.into.size() != 2 || done.into[0].size() != sizeof(detail::MessageHeader)) return;
        const std::byte damaged{0x2A};
        require(cudaMemcpy(done.into[0].data() + at, &damaged, 1, cudaMemcpyHostToDevice), "cudaMemcpy");
        require(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
      };
      world.reduce(dense_of(step, ElementType::float32), ElementType::float32);
      ASSERT_TRUE(world.table().error(1)) << name(strategy) << ", byte " << at;
      EXPECT_EQ(world.table().error(1)->code(), ErrorCode::corrupt_message) << name(strategy) << ", byte " << at;
    }
  }
}

// A worker whose headers lack room again and again is refused by all, at the second time.
TEST(DeviceExchange, RefusesToRepeatForEver) {
  SeededDraw random(33);
  DeviceWorld world(3, {.strategy = Strategy::gather});
  const KnownStep step = KnownStep::draw({.elements = 20'000, .density = 0.02}, 3, random);
  expect_sum(world, step, ElementType::float32);
  unsigned asked = 0;
  world.table().tamper = [&](Collective& done, unsigned worker) {
    if (done.into.size() != 3 || done.into[0].size() != sizeof(detail::MessageHeader)) return;
    asked += worker == 0 ? 1 : 0;
    const detail::MessageHeader lacking{
        .flags = detail::MessageHeader::kNoRoom, .length = sizeof(detail::MessageHeader), .items = 9, .workers = 1};
    require(cudaMemcpy(done.into[2].data(), &lacking, sizeof lacking, cudaMemcpyHostToDevice), "cudaMemcpy");
    require(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  };
  world.reduce(dense_of(step, ElementType::float32), ElementType::float32);
  EXPECT_EQ(asked, 2u);
  for (unsigned w = 0; w < 3; ++w) {
    ASSERT_TRUE(world.table().error(w)) << w;
    EXPECT_NE(std::string(world.table().error(w)->what()).find("more room twice"), std::string::npos);
  }
}

TEST(DeviceExchange, RefusesWithoutADevice) {
  State state;
  std::vector<float> x(10);
  const Dense array(x.data(), x.size(), ElementType::float32, Memory::device);
  try {
    const Exchange exchange(state, {.rank = 0, .size = 1}, array);
    FAIL() << "there is no device";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("device memory"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace peel::testing
