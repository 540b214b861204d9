// StateOptions::execution.backend: every strategy computes with the backend that its state names, and with no other;
// and what moves and adds items asks the engine that it is given.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "allreduce/round_table.h"
#include "allreduce/workers.h"
#include "codec/engine.h"
#include "codec/forced_backend.h"
#include "items/add_items.h"
#include "items/drawn_items.h"
#include "items/item_message.h"
#include "items/owner_map.h"
#include "peel/codec.h"
#include "peel/exchange.h"
#include "peel/items.h"

namespace peel::testing {
namespace {

constexpr unsigned kWorkers = 3;
constexpr std::uint64_t kElements = 20'001;
constexpr std::uint32_t kGrain = 4;

using Bits = std::vector<std::byte>;

struct Case {
  Strategy strategy;
  Outcome outcome = Outcome::everywhere;
  std::uint32_t grain = 1;
  std::uint64_t permille = 10;  // of the grains on one worker

  [[nodiscard]] std::string words() const {
    return std::string(name(strategy)) + (outcome == Outcome::scattered ? " scattered" : "") + ", grain " +
           std::to_string(grain) + ", " + std::to_string(permille) + " permille";
  }
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const std::uint32_t grain : {1u, kGrain}) {
    for (const std::uint64_t permille : {1u, 10u, 100u, 500u, 1000u}) {  // short lists, lists, bitmaps, everything
      for (const Strategy strategy :
           {Strategy::dense, Strategy::packed, Strategy::sketch, Strategy::split, Strategy::gather}) {
        cases.push_back({strategy, Outcome::everywhere, grain, permille});
      }
      cases.push_back({Strategy::split, Outcome::scattered, grain, permille});
      cases.push_back({Strategy::dense, Outcome::scattered, grain, permille});
    }
  }
  return cases;
}

// Values whose sums round.
std::vector<float> draw_gradient(const Case& one, unsigned worker) {
  SeededDraw random(one.permille * 100 + worker);
  std::vector<float> x(kElements);
  for (std::uint64_t i = 0; i < kElements; i += one.grain) {
    if (random.below(1000) >= one.permille) continue;
    for (std::uint64_t e = i; e < std::min<std::uint64_t>(i + one.grain, kElements); ++e) {
      x[e] = std::ldexp(static_cast<float>(1 + random.below(1u << 23)), static_cast<int>(random.below(8)) - 30);
    }
  }
  return x;
}

std::vector<State> make_states(const Case& one, Backend backend, std::uint64_t elements) {
  std::vector<State> states;
  for (unsigned w = 0; w < kWorkers; ++w) {
    states.emplace_back(StateOptions{.strategy = one.strategy,
                                     .grain = one.grain,
                                     .elements = elements,
                                     .chunk_bytes = 16'384,
                                     .execution = {.backend = backend}});
  }
  return states;
}

World world_of(unsigned rank) { return {.rank = rank, .size = kWorkers, .link = kSlowLink}; }

void run(RoundTable& table) {
  table.run();
  for (unsigned w = 0; w < kWorkers; ++w) demand(!table.error(w), table.error(w) ? table.error(w)->what() : "");
}

// What all workers hold after two steps, of which the second knows the first.
Bits sum_dense(const Case& one, Backend backend) {
  std::vector<State> states = make_states(one, backend, 0);
  Bits bits;
  for (int step = 0; step < 2; ++step) {
    RoundTable table(1);
    std::vector<std::vector<float>> arrays;
    for (unsigned w = 0; w < kWorkers; ++w) arrays.push_back(draw_gradient(one, w));
    for (unsigned w = 0; w < kWorkers; ++w) {
      table.join(std::make_unique<Exchange>(states[w], world_of(w), arrays[w], one.outcome));
    }
    run(table);
    for (const std::vector<float>& x : arrays) {
      const auto* bytes = reinterpret_cast<const std::byte*>(x.data());
      bits.insert(bits.end(), bytes, bytes + x.size() * sizeof(float));
    }
  }
  return bits;
}

Bits sum_sparse(const Case& one, Backend backend) {
  std::vector<State> states = make_states(one, backend, kElements);
  RoundTable table(1);
  std::vector<Sparse> own(kWorkers), sums(kWorkers);
  for (unsigned w = 0; w < kWorkers; ++w) {
    std::vector<float> x = draw_gradient(one, w);
    x.resize((kElements + one.grain - 1) / one.grain * one.grain);
    for (std::uint64_t i = 0; i < x.size(); i += one.grain) {
      if (x[i] == 0) continue;
      own[w].items.push_back(i / one.grain);
      const auto* bytes = reinterpret_cast<const std::byte*>(x.data() + i);
      own[w].values.insert(own[w].values.end(), bytes, bytes + one.grain * sizeof(float));
    }
    table.join(std::make_unique<Exchange>(states[w], world_of(w), own[w], sums[w]));
  }
  run(table);
  Bits bits;
  for (const Sparse& sum : sums) {
    const auto* items = reinterpret_cast<const std::byte*>(sum.items.data());
    bits.insert(bits.end(), items, items + sum.items.size() * sizeof(std::uint64_t));
    bits.insert(bits.end(), sum.values.begin(), sum.values.end());
  }
  return bits;
}

// "automatic" throws while PEEL_BACKEND names no backend, so whoever takes it instead of the state's is found.
constexpr const char* kNoBackend = "none";

TEST(BackendOfAState, IsTheOnlyOneThatIsAskedForAndAllGiveTheSameBits) {
  const ForcedBackend forced(kNoBackend);
  ASSERT_THROW(resolve(Backend::automatic), Error);
  for (const Case& one : all_cases()) {
    SCOPED_TRACE(one.words());
    const bool sparse = one.outcome == Outcome::everywhere && one.strategy != Strategy::dense;
    std::vector<Bits> dense_sums, sparse_sums;
    for (const Backend backend : available_backends()) {
      SCOPED_TRACE(name(backend));
      ASSERT_NO_THROW(dense_sums.push_back(sum_dense(one, backend)));
      if (sparse) {
        ASSERT_NO_THROW(sparse_sums.push_back(sum_sparse(one, backend)));
      }
    }
    for (const Bits& bits : dense_sums) EXPECT_TRUE(bits == dense_sums[0]);
    for (const Bits& bits : sparse_sums) EXPECT_TRUE(bits == sparse_sums[0]);
  }
}

// PEEL_BACKEND is read when an exchange begins. Whoever changes it afterwards changes the next one.
TEST(BackendOfTheEnvironment, IsReadOncePerExchange) {
  for (const Case& one : all_cases()) {
    SCOPED_TRACE(one.words());
    std::vector<State> states = make_states(one, Backend::automatic, 0);
    std::vector<std::vector<float>> arrays;
    for (unsigned w = 0; w < kWorkers; ++w) arrays.push_back(draw_gradient(one, w));
    RoundTable table(1);
    {
      const ForcedBackend known("reference");
      for (unsigned w = 0; w < kWorkers; ++w) {
        table.join(std::make_unique<Exchange>(states[w], world_of(w), arrays[w], one.outcome));
      }
    }
    const ForcedBackend unknown(kNoBackend);
    ASSERT_NO_THROW(run(table));
  }
}

// Counts and lists as the reference does, and knows how often it was asked to.
class CountingEngine final : public detail::Engine {
  using Run = detail::Run;
  using SupportData = detail::SupportData;
  using Overlap = detail::Overlap;
  using PeelOptions = detail::PeelOptions;
  using Peeled = detail::Peeled;

 public:
  [[nodiscard]] int take_calls() { return std::exchange(calls_, 0); }

  std::uint32_t positions(const std::uint64_t* words, std::uint32_t count, std::uint32_t* out) const override {
    ++calls_;
    return detail::reference_engine().positions(words, count, out);
  }
  [[nodiscard]] std::uint64_t count(const std::uint64_t* words, std::uint64_t count) const override {
    ++calls_;
    return detail::reference_engine().count(words, count);
  }

  void scan(const Run&, const std::byte*, SupportData&, std::uint64_t*) const override { refuse(); }
  void expand(const Run&, const std::uint64_t*, const std::byte*, std::byte*) const override { refuse(); }
  [[nodiscard]] Overlap overlap(const Run&, const std::uint64_t*, const std::uint64_t*) const override { refuse(); }
  void bloom_insert(const Run&, const std::uint64_t*, std::uint64_t*) const override { refuse(); }
  void bloom_query(const Run&, const std::uint64_t*, std::uint64_t*) const override { refuse(); }
  [[nodiscard]] bool fits(const Run&, const SupportData&) const override { refuse(); }
  bool pack(const Run&, const SupportData&, const std::uint64_t*, std::byte*) const override { refuse(); }
  void unpack(const Run&, const std::byte*, std::uint64_t, std::byte*) const override { refuse(); }
  bool sketch(const Run&, const SupportData&, std::byte*) const override { refuse(); }
  Peeled peel(const Run&, const std::uint64_t*, const std::byte*, const PeelOptions&, std::byte*) const override {
    refuse();
  }

 private:
  [[noreturn]] static void refuse() { throw Surprise("nothing that moves items has to ask an engine for this"); }

  mutable int calls_ = 0;
};

// While PEEL_BACKEND names none, no other engine can be had but by name.
TEST(EngineThatIsGiven, PacksAndOpensItemMessages) {
  const ForcedBackend forced(kNoBackend);
  CountingEngine engine;
  SeededDraw random(1);
  for (const std::uint64_t permille : {10u, 100u, 500u}) {
    SCOPED_TRACE(permille);
    const DrawnItems drawn = draw_items(10'000, 4, permille, random);
    const detail::ItemMessageShape shape{10'000, 4};
    Buffer<std::uint64_t> list;
    Buffer<std::byte> message;
    detail::PositionBuffers buffers;
    detail::pack_items(engine, shape, drawn.view(), list, message);
    EXPECT_EQ(engine.take_calls() != 0, permille < 200) << "where positions are coded as a list";
    EXPECT_TRUE(same_items(detail::open_items(engine, shape, message, buffers), drawn, 4));
    EXPECT_EQ(engine.take_calls(), 1);
    (void)detail::open_items_as_sent(engine, shape, message, buffers);
    EXPECT_EQ(engine.take_calls() != 0, permille > 31) << "where it does not stay a list";
  }
}

TEST(EngineThatIsGiven, ListsAWorkersOwnItems) {
  const ForcedBackend forced(kNoBackend);
  CountingEngine engine;
  const Plan plan = Plan::make({.elements = 10'000, .index = Index::bitmap});
  std::vector<float> x(10'000);
  x[5000] = 1;
  Support support;
  scan(plan, x, support, {.backend = Backend::reference});
  detail::PositionBuffers buffers;
  const detail::ItemView view = detail::view_items(engine, detail::item_message_shape(plan), support, buffers);
  EXPECT_NE(engine.take_calls(), 0);
  ASSERT_EQ(view.positions.size(), 1u);
  EXPECT_EQ(view.positions[0], 5000u);
}

TEST(EngineThatIsGiven, DealsAndCollectsShares) {
  const ForcedBackend forced(kNoBackend);
  CountingEngine engine;
  SeededDraw random(2);
  const DrawnItems drawn = draw_items(10'000, 4, 100, random);
  const detail::OwnerMap owners(engine, 10'000, 2);
  std::vector<detail::PositionBuffers> shares(2);
  std::vector<std::uint64_t> sizes(2);
  owners.deal_words(drawn.words, shares, sizes);
  EXPECT_EQ(engine.take_calls(), 2);
  Buffer<std::byte> first(sizes[0] * 4), second(sizes[1] * 4);
  owners.deal_values(drawn.words, drawn.values, 4, {first.data(), second.data()});
  EXPECT_NE(engine.take_calls(), 0);
  const std::vector<detail::ItemView> views = {{.words = shares[0].words, .values = first.data(), .items = sizes[0]},
                                               {.words = shares[1].words, .values = second.data(), .items = sizes[1]}};
  Buffer<std::uint64_t> words;
  Buffer<std::byte> values;
  owners.collect(views, 4, words, values);
  EXPECT_NE(engine.take_calls(), 0);
  EXPECT_TRUE(same_items({.words = words, .values = values.data(), .items = drawn.items}, drawn, 4));
}

TEST(EngineThatIsGiven, AddsItems) {
  const ForcedBackend forced(kNoBackend);
  CountingEngine engine;
  SeededDraw random(3);
  const DrawnItems drawn = draw_items(10'000, 4, 100, random);
  const std::vector<detail::ItemView> views = {drawn.view()};
  Buffer<std::uint64_t> words;
  EXPECT_EQ(detail::unite_items(engine, 10'000, views, words), drawn.items);
  EXPECT_EQ(engine.take_calls(), 1);
  Buffer<std::byte> sums(drawn.items * 4), array(40'000);
  detail::add_items(engine, ElementType::int32, 1, views, words, sums.data());
  EXPECT_NE(engine.take_calls(), 0);
  EXPECT_EQ(std::memcmp(sums.data(), drawn.values.data(), sums.size()), 0);
  detail::add_items_in_place(engine, ElementType::int32, views, words, array.data());
  EXPECT_NE(engine.take_calls(), 0);
}

}  // namespace
}  // namespace peel::testing
