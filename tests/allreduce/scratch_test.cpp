// The memory that exchanges work in is one pool's, whatever their states.
#include "peel/scratch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "allreduce/known_gradients.h"
#include "allreduce/round_table.h"
#include "allreduce/small_world.h"
#include "allreduce/workers.h"
#include "peel/allreduce.h"
#include "property.h"
#include "scale.h"

namespace peel::testing {
namespace {

constexpr unsigned kWorkers = 3;

StateOptions options_with(Strategy strategy) {
  return {.strategy = strategy, .link = kSlowLink, .chunk_bytes = 1 << 16, .timeout = kPatient};
}

void expect(const std::string& difference) {
  if (!difference.empty()) throw Error(ErrorCode::unsupported, difference);
}

void sum_dense(Communicator& comm, const KnownStep& step, ElementType type, State& state) {
  Array x(step.workers[comm.rank()].dense(type), type);
  (void)allreduce(comm, x.view(), state);
  expect(difference(step.sum, type, x.bytes()));
}

TEST(Scratch, OfManyStatesIsThatOfOne) {
  SeededDraw random(5);
  const KnownStep step = KnownStep::draw({.elements = 200'000, .density = 0.3}, kWorkers, random);
  for (const Strategy strategy : {Strategy::automatic, Strategy::packed, Strategy::sketch, Strategy::split}) {
    const Errors errors = on_each(kWorkers, [&](Communicator& comm) {
      std::vector<State> states;
      std::size_t of_one = 0;
      for (int i = 0; i < 20; ++i) {
        states.emplace_back(options_with(strategy));
        for (int again = 0; again < 3; ++again) sum_dense(comm, step, ElementType::float32, states.back());
        if (i == 0) of_one = comm.scratch()->memory_bytes();
      }
      const std::size_t of_all = comm.scratch()->memory_bytes();
      if (of_one == 0 || of_all > of_one + of_one / 4) {
        expect("20 states work in " + std::to_string(of_all) + " bytes and one in " + std::to_string(of_one) + ".");
      }
    });
    EXPECT_EQ(first_error(errors), "") << name(strategy);
  }
}

TEST(Scratch, IsFreedOnRequest) {
  SeededDraw random(6);
  const KnownStep step = KnownStep::draw({.elements = 50'000}, kWorkers, random);
  const Errors errors = on_each(kWorkers, [&](Communicator& comm) {
    State state(options_with(Strategy::split));
    for (int i = 0; i < 3; ++i) {
      sum_dense(comm, step, ElementType::float32, state);
      expect(comm.scratch()->memory_bytes() == 0 ? "Nothing was kept." : "");
      comm.trim();
      expect(comm.scratch()->memory_bytes() != 0 ? "Something was kept." : "");
    }
  });
  EXPECT_EQ(first_error(errors), "");
}

// From another thread, at any time.
TEST(Scratch, IsFreedBesideSums) {
  SeededDraw random(8);
  const KnownStep step = KnownStep::draw({.elements = 50'000}, kWorkers, random);
  const Errors errors = on_each(kWorkers, [&](Communicator& comm) {
    State state(options_with(Strategy::split));
    std::atomic<bool> over = false;
    std::thread trims([&] {
      while (!over) {
        comm.trim();
        (void)comm.scratch()->memory_bytes();
      }
    });
    std::optional<Error> error;
    try {
      for (int i = 0; i < 30; ++i) sum_dense(comm, step, ElementType::float32, state);
    } catch (const Error& caught) {
      error = caught;
    }
    over = true;
    trims.join();
    if (error) throw *error;
  });
  EXPECT_EQ(first_error(errors), "");
}

// Groups of several sizes may use one pool.
TEST(Scratch, IsUsedByWorldsOfSeveralSizes) {
  SeededDraw random(9);
  const auto pool = std::make_shared<ScratchPool>();
  for (const unsigned workers : {5u, 2u, 3u, 5u}) {
    const KnownStep step = KnownStep::draw({.elements = 30'000}, workers, random);
    for (const Strategy strategy : {Strategy::split, Strategy::gather, Strategy::packed}) {
      std::vector<State> states;
      std::vector<Array> arrays;
      for (unsigned w = 0; w < workers; ++w) {
        states.emplace_back(options_with(strategy));
        arrays.emplace_back(step.workers[w].dense(ElementType::float32), ElementType::float32);
      }
      RoundTable table(workers);
      for (unsigned w = 0; w < workers; ++w) {
        const World world{.rank = w, .size = workers, .link = kSlowLink, .scratch = pool};
        table.join(std::make_unique<Exchange>(states[w], world, arrays[w].view()));
      }
      table.run();
      for (Array& x : arrays) EXPECT_EQ(difference(step.sum, ElementType::float32, x.bytes()), "");
    }
  }
}

// What another state left there, of another strategy, type, length, grain or view, must not be read.
TEST(Scratch, IsUsedByStatesOfAllKindsInTurn) {
  struct Kind {
    Strategy strategy;
    ElementType type;
    std::uint64_t elements;
    std::uint32_t grain;  // of a sparse one; 0: dense
  };
  constexpr std::array kKinds = {
      Kind{Strategy::sketch, ElementType::float32, 90'001, 0}, Kind{Strategy::split, ElementType::float64, 40'000, 0},
      Kind{Strategy::packed, ElementType::int16, 130'000, 0},  Kind{Strategy::gather, ElementType::float32, 7'777, 0},
      Kind{Strategy::split, ElementType::float32, 64'000, 16}, Kind{Strategy::sketch, ElementType::float32, 50'000, 8},
      Kind{Strategy::dense, ElementType::float32, 33'333, 0},  Kind{Strategy::gather, ElementType::int32, 96'000, 32}};
  SeededDraw random(7);
  std::vector<std::size_t> kinds;
  std::vector<KnownStep> steps;
  for (int i = 0; i < 60; ++i) {
    kinds.push_back(random.below(kKinds.size()));
    const Kind& kind = kKinds[kinds.back()];
    const Drawing how{.elements = kind.elements,
                      .type = kind.type,
                      .pattern = kPatterns[random.below(std::size(kPatterns))],
                      .density = random.below(2) == 0 ? 0.01 : 0.4};
    steps.push_back(KnownStep::draw(how, kWorkers, random));
  }
  const Errors errors = on_each(kWorkers, [&](Communicator& comm) {
    std::vector<State> states;
    for (const Kind& kind : kKinds) {
      StateOptions options = options_with(kind.strategy);
      if (kind.grain != 0) options.elements = kind.elements, options.grain = kind.grain, options.chunk_bytes = 0;
      states.emplace_back(options);
    }
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const Kind& kind = kKinds[kinds[i]];
      if (kind.grain == 0) {
        sum_dense(comm, steps[i], kind.type, states[kinds[i]]);
        continue;
      }
      Sparse x = steps[i].workers[comm.rank()].sparse(kind.type, kind.grain);
      (void)allreduce(comm, x, states[kinds[i]]);
      expect(difference(steps[i], kind.grain, x));
    }
  });
  EXPECT_EQ(first_error(errors), "");
}

// The bytes that the second of two exchanges of `elements` floats reports.
std::uint64_t reported(Strategy strategy, std::uint64_t elements, const std::shared_ptr<ScratchPool>& pool) {
  SeededDraw random(11);
  const KnownStep step = KnownStep::draw({.elements = elements, .density = 0.2}, kWorkers, random);
  std::vector<State> states;
  for (unsigned w = 0; w < kWorkers; ++w) states.emplace_back(options_with(strategy));
  std::uint64_t bytes = 0;
  for (int again = 0; again < 2; ++again) {
    RoundTable table(1);
    std::vector<Array> arrays;
    for (unsigned w = 0; w < kWorkers; ++w) {
      arrays.emplace_back(step.workers[w].dense(ElementType::float32), ElementType::float32);
    }
    for (unsigned w = 0; w < kWorkers; ++w) {
      const World world{.rank = w, .size = kWorkers, .link = kSlowLink, .scratch = pool};
      table.join(std::make_unique<Exchange>(states[w], world, arrays[w].view()));
    }
    table.run();
    for (unsigned w = 0; w < kWorkers; ++w) bytes = std::max(bytes, table.report(w).workspace_bytes);
  }
  return bytes;
}

// Room that another strategy, or a longer array, left in the pool is nothing that an exchange worked in.
TEST(Scratch, IsReportedAsItIsUsedAndNotAsItIsKept) {
  constexpr std::uint64_t kShort = 20'000, kLong = 150'000;
  const auto pool = std::make_shared<ScratchPool>();
  const std::uint64_t sketch = reported(Strategy::sketch, kLong, pool);
  for (const Strategy strategy :
       {Strategy::dense, Strategy::packed, Strategy::sketch, Strategy::split, Strategy::gather}) {
    const std::uint64_t alone = reported(strategy, kShort, std::make_shared<ScratchPool>());
    EXPECT_EQ(reported(strategy, kShort, pool), alone) << name(strategy);
    EXPECT_LT(alone, sketch) << name(strategy);
    if (strategy != Strategy::dense) {
      EXPECT_GT(alone, kShort / 2) << name(strategy);  // a bitmap alone takes kShort / 8
    }
  }
}

enum class Way : std::uint8_t { dense, sparse, scattered };

// One exchange of each worker, with all that it sums, around a table.
class Sums {
 public:
  Sums(SmallWorld& world, const KnownStep& known, Way way, std::uint64_t seed)
      : known_(known),
        way_(way),
        grain_(world.options().grain),
        arrays_(kWorkers),
        own_(kWorkers),
        sums_(kWorkers),
        table_(seed) {
    for (unsigned w = 0; w < kWorkers; ++w) {
      State& state = world.states()[w];
      if (way == Way::sparse) {
        own_[w] = known.workers[w].sparse(ElementType::float32, grain_);
        table_.join(std::make_unique<Exchange>(state, world.world(w), own_[w], sums_[w]));
        continue;
      }
      arrays_[w] = Array(known.workers[w].dense(ElementType::float32), ElementType::float32);
      const Outcome outcome = way == Way::scattered ? Outcome::scattered : Outcome::everywhere;
      table_.join(std::make_unique<Exchange>(state, world.world(w), arrays_[w].view(), outcome));
    }
  }

  [[nodiscard]] RoundTable& table() { return table_; }

  void finish() {
    table_.run();
    for (unsigned w = 0; w < kWorkers; ++w) {
      demand(!table_.error(w), table_.error(w) ? table_.error(w)->what() : "");
      const std::string wrong = way_ == Way::sparse ? difference(known_, grain_, sums_[w])
                                                    : difference(expected(w), ElementType::float32, arrays_[w].bytes());
      demand(wrong.empty(), "worker " + std::to_string(w) + ": " + wrong);
    }
  }

 private:
  [[nodiscard]] KnownGradient expected(unsigned worker) const {
    if (way_ == Way::dense) return known_.sum;
    KnownGradient x = known_.workers[worker];
    const Share share = share_of(x.size(), kWorkers, worker);
    for (std::uint64_t i = share.begin; i < share.end; ++i) x[i] = known_.sum[i];
    return x;
  }

  const KnownStep& known_;
  Way way_;
  std::uint32_t grain_;
  std::vector<Array> arrays_;
  std::vector<Sparse> own_, sums_;
  RoundTable table_;
};

// An exchange that is stopped wherever it stands leaves half of a message in its scratch, and the next one works there.
// Where one worker has forgotten what it learned, chunks were encoded by a plan that is withdrawn.
TEST(Scratch, SurvivesAbandonedExchanges) {
  check_property(43, static_cast<int>(scaled(600, 100)), [](Draw& draw) {
    const Way way = draw.pick({Way::dense, Way::sparse, Way::scattered});
    const std::uint64_t elements = 1 + draw.below(6000);
    StateOptions options{.chunk_bytes = draw.pick<std::uint64_t>({0, 4096})};
    if (way == Way::scattered) {
      options.strategy = draw.pick({Strategy::automatic, Strategy::dense, Strategy::split});
    } else {
      options.strategy = draw.pick({Strategy::automatic, Strategy::packed, Strategy::sketch, Strategy::split,
                                    Strategy::gather, way == Way::dense ? Strategy::dense : Strategy::automatic});
    }
    if (way == Way::sparse) options.elements = elements, options.grain = 1u << draw.below(7);
    SeededDraw random(draw.below(1 << 20));
    SmallWorld world(kWorkers, options);
    for (int turn = 0; turn < 3; ++turn) {
      const Drawing how{.elements = elements,
                        .pattern = kPatterns[draw.below(std::size(kPatterns))],
                        .density = draw.pick({0.01, 0.1, 0.5})};
      const KnownStep known = KnownStep::draw(how, kWorkers, random);
      const bool differ = turn != 0 && draw.one_in(2);
      if (differ) world.states()[1] = State(options);
      Sums(world, known, way, random.bits()).table().run_at_most(draw.below(80));
      if (differ) world.states()[1] = State(options);
      Sums(world, known, way, random.bits()).finish();
    }
  });
}

}  // namespace
}  // namespace peel::testing
