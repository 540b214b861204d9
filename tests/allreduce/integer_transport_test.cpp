// A transport that can only SUM integers and OR words, as a switch can: packed and sketch do with fixed-point numbers,
// everything else is refused with a sentence, on every worker.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

#include "allreduce/known_gradients.h"
#include "allreduce/workers.h"
#include "peel/allreduce.h"
#include "refusal.h"

namespace peel::testing {
namespace {

class IntegerSwitch final : public Communicator {
 public:
  explicit IntegerSwitch(Communicator& threads) : threads_(threads) {}

  [[nodiscard]] unsigned rank() const noexcept override { return threads_.rank(); }
  [[nodiscard]] unsigned size() const noexcept override { return threads_.size(); }
  [[nodiscard]] std::string_view transport() const noexcept override { return "switch"; }
  [[nodiscard]] bool offers(Collective::Kind kind, ElementType type) const noexcept override {
    return kind == Collective::Kind::bit_or || (kind == Collective::Kind::sum && is_integer(type));
  }
  std::uint32_t open_channel() override { return threads_.open_channel(); }
  std::unique_ptr<Operation> start(Collective& what, std::uint32_t channel,
                                   std::chrono::milliseconds timeout) override {
    if (!offers(what.kind, what.type)) throw Error(ErrorCode::unsupported, "This switch cannot do that.");
    return threads_.start(what, channel, timeout);
  }
  void relax() override { threads_.relax(); }

 private:
  Communicator& threads_;
};

template <typename Body>
Errors on_each_port(unsigned workers, Body body) {
  return on_each(workers, [&](Communicator& communicator) {
    IntegerSwitch port(communicator);
    body(port);
  });
}

constexpr Strategy kPossible[] = {Strategy::automatic, Strategy::packed, Strategy::sketch};

TEST(IntegerTransport, SumsFloatsExactlyWhereTheScaleCanHoldThem) {
  for (const Strategy strategy : kPossible) {
    for (const ElementType type : {ElementType::float32, ElementType::float64, ElementType::float16,
                                   ElementType::bfloat16, ElementType::int8, ElementType::int64}) {
      SeededDraw random(3);
      std::vector<KnownStep> steps;
      for (const Pattern pattern : kPatterns) {
        steps.push_back(KnownStep::draw({.elements = 5001, .type = type, .pattern = pattern}, 3, random));
      }
      const Errors errors = on_each_port(3, [&](Communicator& port) {
        State dense({.strategy = strategy, .link = kSlowLink, .chunk_bytes = 8192, .timeout = kPatient});
        State sparse({.strategy = strategy, .grain = 8, .elements = 5001, .link = kSlowLink, .timeout = kPatient});
        for (const KnownStep& known : steps) {
          Array x(known.workers[port.rank()].dense(type), type);
          const Report report = allreduce(port, x.view(), dense);
          EXPECT_EQ(difference(known.sum, type, x.bytes()), "") << name(strategy) << ", " << name(type);
          EXPECT_NE(report.strategy, Strategy::split);
          if (!is_integer(type) && report.items != 0) {
            EXPECT_EQ(report.exactness, Exactness::fixed_point);
            EXPECT_GT(report.error_bound, 0);
          }
          Sparse rows = known.workers[port.rank()].sparse(type, 8);
          allreduce(port, rows, sparse);
          EXPECT_EQ(difference(known, 8, rows), "") << name(strategy) << ", " << name(type);
        }
      });
      EXPECT_EQ(first_error(errors), "") << name(strategy) << ", " << name(type);
    }
  }
}

// Small and large values, growing and shrinking: within the bound that the report gives, and that bound is small.
TEST(IntegerTransport, RealValuesKeepTheReportedBound) {
  for (const Strategy strategy : kPossible) {
    const Errors errors = on_each_port(4, [&](Communicator& port) {
      State state({.strategy = strategy, .link = kSlowLink, .chunk_bytes = 4096, .timeout = kPatient});
      for (int step = 0; step < 6; ++step) {
        const double size = std::pow(1000.0, step % 3 - 2);
        std::vector<std::vector<float>> all(4, std::vector<float>(3000));
        SeededDraw random(static_cast<std::uint64_t>(step));
        for (auto& x : all) {
          for (float& value : x) {
            if (random.below(5) == 0)
              value = static_cast<float>(size * (static_cast<double>(random.below(2001)) - 1000));
          }
        }
        std::vector<float> x = all[port.rank()];
        const Report report = allreduce(port, x, state);
        EXPECT_LT(report.error_bound, size * 1e-1);
        for (std::size_t i = 0; i < x.size(); ++i) {
          double sum = 0;
          for (const auto& other : all) sum += static_cast<double>(other[i]);
          const double half_ulp = 0.5 * (std::nextafter(std::fabs(x[i]), INFINITY) - std::fabs(x[i]));
          ASSERT_LE(std::fabs(static_cast<double>(x[i]) - sum), report.error_bound + half_ulp * (1 + 1e-6))
              << name(strategy) << ", step " << step << ", element " << i;
        }
      }
      EXPECT_GT(state.totals().rescaled, 0u);
    });
    EXPECT_EQ(first_error(errors), "") << name(strategy);
  }
}

TEST(IntegerTransport, RefusesWhatNeedsMore) {
  struct Wrong {
    Strategy strategy;
    std::string fragment;
  };
  for (const Wrong& wrong :
       {Wrong{Strategy::split, "can only SUM and OR"}, Wrong{Strategy::gather, "can only SUM and OR"},
        Wrong{Strategy::dense, "adds integers only"}}) {
    const Errors errors = on_each_port(3, [&](Communicator& port) {
      State state({.strategy = wrong.strategy, .link = kSlowLink, .timeout = kPatient});
      std::vector<float> x(100, 1.0f);
      const std::vector<float> before = x;
      expect_refusal(ErrorCode::invalid_argument, wrong.fragment, [&] { allreduce(port, x, state); });
      EXPECT_EQ(x, before);
    });
    EXPECT_EQ(first_error(errors), "");
  }
  const Errors errors = on_each_port(2, [&](Communicator& port) {
    State state({.link = kSlowLink, .timeout = kPatient});
    std::vector<float> x(100, 1.0f);
    expect_refusal(ErrorCode::invalid_argument, "has to move buffers", [&] { reduce_scatter(port, x, state); });
  });
  EXPECT_EQ(first_error(errors), "");
}

// Integers need no scale: they go as they are, and dense is possible.
TEST(IntegerTransport, AddsIntegersInTheirOwnWidth) {
  const Errors errors = on_each_port(2, [&](Communicator& port) {
    std::vector<std::int16_t> x(1024, 7);
    State dense({.strategy = Strategy::dense, .link = kSlowLink, .timeout = kPatient});
    allreduce(port, x, dense);
    EXPECT_EQ(x, std::vector<std::int16_t>(1024, 14));
    State packed({.strategy = Strategy::packed, .grain = 1, .link = kSlowLink, .timeout = kPatient});
    const Report report = allreduce(port, x, packed);
    EXPECT_EQ(x, std::vector<std::int16_t>(1024, 28));
    EXPECT_LT(report.bytes_sent, 1024 * sizeof(std::int16_t) + 512) << "16-bit values travel as 16 bits";
  });
  EXPECT_EQ(first_error(errors), "");
}

TEST(IntegerTransport, NotANumberIsAnErrorOnEveryWorker) {
  for (const Strategy strategy : kPossible) {
    for (int bad_step = 0; bad_step < 2; ++bad_step) {
      const Errors errors = on_each_port(3, [&](Communicator& port) {
        State state({.strategy = strategy, .link = kSlowLink, .timeout = kPatient, .name = "layer 7"});
        for (int step = 0; step <= bad_step; ++step) {
          std::vector<float> x(500, 1.0f);
          if (step == bad_step && port.rank() == 1) x[77] = std::numeric_limits<float>::quiet_NaN();
          allreduce(port, x, state);
        }
      });
      for (const auto& error : errors) {
        ASSERT_TRUE(error) << name(strategy) << ", step " << bad_step;
        EXPECT_EQ(error->code(), ErrorCode::not_finite) << error->what();
        expect_sentence(error->what(), "layer 7");
        EXPECT_STREQ(error->what(), errors[0]->what());
      }
    }
  }
}

TEST(IntegerTransport, ValuesThatFitNoScaleAreAnErrorOnEveryWorker) {
  for (const Strategy strategy : kPossible) {
    const Errors errors = on_each_port(3, [&](Communicator& port) {
      State state({.strategy = strategy, .link = kSlowLink, .timeout = kPatient, .name = "layer 7"});
      std::vector<double> x(500, port.rank() == 1 ? 1e300 : 1.0);
      allreduce(port, x, state);
    });
    for (const auto& error : errors) {
      ASSERT_TRUE(error) << name(strategy);
      EXPECT_EQ(error->code(), ErrorCode::overflow) << error->what();
      expect_sentence(error->what(), "values that fit no fixed-point scale in \"layer 7\"");
      EXPECT_STREQ(error->what(), errors[0]->what());
    }
  }
}

TEST(IntegerTransport, WorkersThatDifferAllRaise) {
  const Errors errors = on_each_port(3, [&](Communicator& port) {
    State state({.link = kSlowLink, .timeout = kPatient});
    std::vector<float> x(port.rank() == 2 ? 99 : 100, 1.0f);
    allreduce(port, x, state);
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::disagreement);
    expect_sentence(error->what(), "Workers differ");
  }
}

// Disabled means dense, but where floats cannot be added the plainest there is has to do.
TEST(IntegerTransport, StillSumsWhenDisabled) {
  setenv("PEEL_DISABLE", "1", 1);
  const Errors errors = on_each_port(2, [&](Communicator& port) {
    State dense({.strategy = Strategy::sketch, .link = kSlowLink, .timeout = kPatient});
    std::vector<float> x(100, 1.0f);
    EXPECT_EQ(allreduce(port, x, dense).strategy, Strategy::packed);
    EXPECT_EQ(x, std::vector<float>(100, 2.0f));
    State sparse({.grain = 1, .elements = 100, .link = kSlowLink, .timeout = kPatient});
    const std::vector<std::uint64_t> items = {port.rank()};
    Sparse sum;
    allreduce(port, ConstSparse(items, x.data(), ElementType::float32), sum, sparse);
    EXPECT_EQ(sum.items, (std::vector<std::uint64_t>{0, 1}));
  });
  unsetenv("PEEL_DISABLE");
  EXPECT_EQ(first_error(errors), "");
}

// Nothing can be gathered here, so there is nothing that workers could agree on but the defaults.
TEST(IntegerTransport, DoesNotMeasureWhatItCannot) {
  const Errors errors = on_each_port(3, [&](Communicator& port) {
    State state({.timeout = kPatient});
    std::vector<float> x(100, 1.0f);
    allreduce(port, x, state);
    EXPECT_EQ(x, std::vector<float>(100, 3.0f));
    ASSERT_TRUE(port.link().has_value());
    EXPECT_EQ(port.link()->latency_s, LinkFacts{}.latency_s);
  });
  EXPECT_EQ(first_error(errors), "");
}

}  // namespace
}  // namespace peel::testing
