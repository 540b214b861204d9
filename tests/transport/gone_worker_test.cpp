// A worker that stops: every other one raises an error that names it, and none that is well, whatever the collective
// and whoever waits for whom.
#include <gtest/gtest.h>

#include <latch>

#include "peel/allreduce.h"
#include "transport/crowd.h"
#include "transport/roll_call.h"

namespace peel {
namespace {

using std::chrono::milliseconds;
using test::run_crowd;

// Half of it is the time that workers have to answer each other.
constexpr milliseconds kTimeout{400};
constexpr milliseconds kPatient{20'000};
constexpr LinkFacts kLink{.latency_s = 50e-6, .bytes_per_second = 125e6, .copy_bytes_per_second = 8e9};

constexpr Collective::Kind kKinds[] = {Collective::Kind::sum, Collective::Kind::bit_or, Collective::Kind::all_to_all,
                                       Collective::Kind::all_gather};

// Works as another one does until so many collectives have begun; then its worker stands still until the others are
// done.
class Stopping final : public Communicator {
 public:
  Stopping(Communicator& inner, unsigned collectives, std::latch& others)
      : inner_(inner), left_(collectives), others_(others) {}

  [[nodiscard]] unsigned rank() const noexcept override { return inner_.rank(); }
  [[nodiscard]] unsigned size() const noexcept override { return inner_.size(); }
  [[nodiscard]] std::string_view transport() const noexcept override { return inner_.transport(); }
  [[nodiscard]] bool offers(Collective::Kind kind, ElementType type) const noexcept override {
    return inner_.offers(kind, type);
  }
  std::uint32_t open_channel() override { return inner_.open_channel(); }
  std::unique_ptr<Operation> start(Collective& what, std::uint32_t channel, milliseconds timeout) override {
    if (left_ == 0) others_.wait();
    if (left_ > 0) --left_;
    return inner_.start(what, channel, timeout);
  }
  void relax() override { inner_.relax(); }

 private:
  Communicator& inner_;
  unsigned left_;
  std::latch& others_;
};

using Work = std::function<void(Communicator&)>;

// Runs `work` on workers of which one stops after so many collectives. Each other one must name it and nobody else.
void expect_named(unsigned workers, unsigned gone, unsigned collectives, const std::string& what, const Work& work) {
  std::latch others(workers - 1);
  const auto errors = run_crowd(workers, [&](Communicator& communicator) {
    if (communicator.rank() == gone) {
      Stopping stopping(communicator, collectives, others);
      return work(stopping);
    }
    try {
      work(communicator);
    } catch (...) {
      others.count_down();
      throw;
    }
    others.count_down();
  });
  for (unsigned worker = 0; worker < workers; ++worker) {
    if (worker == gone) continue;
    const std::string where = what + ", worker " + std::to_string(gone) + " stopped after " +
                              std::to_string(collectives) + ", worker " + std::to_string(worker) + " said: ";
    ASSERT_TRUE(errors[worker]) << where << "nothing";
    const std::string sentence = errors[worker]->what();
    EXPECT_EQ(errors[worker]->code(), ErrorCode::timeout) << where << sentence;
    EXPECT_TRUE(sentence.starts_with("Worker " + std::to_string(gone) + " ")) << where << sentence;
    EXPECT_NE(sentence.find("does not answer"), std::string::npos) << where << sentence;
  }
}

// Several collectives one after another.
Work collectives_of(Collective::Kind kind, std::size_t words) {
  return [kind, words](Communicator& communicator) {
    const std::uint32_t channel = communicator.open_channel();
    std::vector<std::uint64_t> data(words, 1);
    for (std::uint32_t sequence = 0; sequence < 4; ++sequence) {
      Collective what{.kind = kind, .type = ElementType::int64};
      const auto bytes = std::as_writable_bytes(std::span(data));
      if (kind == Collective::Kind::sum || kind == Collective::Kind::bit_or) {
        what.data = bytes;
      } else {
        what.send.assign(kind == Collective::Kind::all_gather ? 1 : communicator.size(), bytes);
      }
      what.sequence = sequence;
      perform(communicator, what, channel, kTimeout);
    }
  };
}

// One step and two steps.
TEST(GoneWorker, IsNamedInEveryKindOfCollective) {
  for (const Collective::Kind kind : kKinds) {
    for (unsigned gone = 0; gone < 4; ++gone) {
      const std::size_t words = gone % 2 == 0 ? 8 : 100'000;
      expect_named(4, gone, gone, std::string(name(kind)), collectives_of(kind, words));
    }
  }
}

// Words go round, so most workers wait for one that waits itself.
TEST(GoneWorker, IsNamedWhereMostWaitForOthers) {
  for (unsigned gone = 0; gone < 9; ++gone) {
    expect_named(9, gone, gone % 3, "bit_or", collectives_of(Collective::Kind::bit_or, 8));
  }
}

// Chunks are under way at once, and some workers get farther than others before they notice.
TEST(GoneWorker, IsNamedInEveryStrategy) {
  for (const Strategy strategy :
       {Strategy::dense, Strategy::packed, Strategy::sketch, Strategy::split, Strategy::gather}) {
    for (unsigned gone = 0; gone < 4; ++gone) {
      expect_named(4, gone, gone * 2, std::string(name(strategy)), [&](Communicator& communicator) {
        State state({.strategy = strategy, .link = kLink, .chunk_bytes = 64 << 10, .timeout = kTimeout});
        std::vector<float> x(200'000, 1.0F);
        for (int step = 0; step < 3; ++step) allreduce(communicator, x, state);
      });
    }
  }
}

TEST(GoneWorker, TwoOfThemAreBothNamed) {
  const auto errors = run_crowd(5, [](Communicator& communicator) {
    if (communicator.rank() == 1 || communicator.rank() == 3) return;
    collectives_of(Collective::Kind::sum, 8)(communicator);
  });
  for (const unsigned worker : {0, 2, 4}) {
    ASSERT_TRUE(errors[worker]);
    const std::string sentence = errors[worker]->what();
    EXPECT_TRUE(sentence.starts_with("Workers 1 and 3 sent nothing")) << sentence;
  }
}

// Each waits for the other in a conversation of its own: both are well, and neither is blamed.
TEST(GoneWorker, NobodyIsNamedWhereAllAnswer) {
  const auto errors = run_crowd(2, [](Communicator& communicator) {
    std::uint64_t word = 0;
    Collective what{.kind = Collective::Kind::bit_or, .data = std::as_writable_bytes(std::span(&word, 1))};
    perform(communicator, what, communicator.rank(), kTimeout);
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::timeout);
    EXPECT_TRUE(std::string(error->what()).starts_with("Nothing moved for 0.4")) << error->what();
  }
}

// What one worker gives up for ends the others long before their own time-out.
TEST(GoneWorker, OneThatGivesUpTellsTheOthers) {
  std::latch both(2);
  const auto begin = std::chrono::steady_clock::now();
  const auto errors = run_crowd(3, [&](Communicator& communicator) {
    if (communicator.rank() == 2) return both.wait();
    std::uint64_t word = 0;
    Collective what{.kind = Collective::Kind::bit_or, .data = std::as_writable_bytes(std::span(&word, 1))};
    try {
      perform(communicator, what, 0, communicator.rank() == 0 ? kTimeout : 10 * kPatient);
    } catch (...) {
      both.count_down();
      throw;
    }
    both.count_down();
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kPatient);
  ASSERT_TRUE(errors[1]);
  const std::string sentence = errors[1]->what();
  EXPECT_TRUE(sentence.starts_with("Worker 2 sent nothing")) << sentence;
  EXPECT_TRUE(sentence.ends_with("Worker 0 noticed it first.")) << sentence;
}

using Ranks = std::vector<unsigned>;

TEST(Answers, LeadToThoseWhoGaveNone) {
  detail::Answers answers(6);
  EXPECT_EQ(answers.silent(0, {2, 3}), (Ranks{2, 3})) << "before anybody answered";
  answers.add(1, {2});
  answers.add(2, {4});
  EXPECT_EQ(answers.silent(0, {2, 3}), (Ranks{3})) << "of those it waits for itself, the silent one";
  EXPECT_EQ(answers.silent(0, {1}), (Ranks{4})) << "1 waits for 2, which waits for 4; 3 and 5 are busy elsewhere";
  answers.add(4, {1});
  EXPECT_EQ(answers.silent(0, {1}), (Ranks{3, 5})) << "a circle; nobody else can be to blame";
  answers.add(3, {});
  answers.add(5, {0});
  EXPECT_EQ(answers.silent(0, {1}), Ranks{});
  EXPECT_EQ(answers.silent(0, {77}), Ranks{}) << "a rank that does not exist";
}

}  // namespace
}  // namespace peel
