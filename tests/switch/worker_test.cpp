// The transport `switch` on a network without faults: every collective that it offers gives known results, exchanges
// run over it, and what it cannot do is refused.
#include <gtest/gtest.h>

#include "allreduce/known_gradients.h"
#include "peel/allreduce.h"
#include "refusal.h"
#include "switch/bad_network.h"
#include "transport/crowd.h"
#include "transport/known_collectives.h"

namespace peel::testing {
namespace {

using test::run_crowd;

void expect_no_errors(const std::vector<std::optional<Error>>& errors) {
  for (const auto& error : errors) EXPECT_FALSE(error) << error->what();
}

constexpr ElementType kIntegers[] = {ElementType::int8, ElementType::int16, ElementType::int32, ElementType::int64};

TEST(SwitchTransport, GivesKnownResults) {
  for (const unsigned workers : {1U, 2U, 3U, 9U}) {
    BadNetwork network;
    auto all = network.join_all(workers);
    expect_no_errors(run_crowd(all, [](Communicator& communicator) {
      EXPECT_EQ(communicator.transport(), "switch");
      EXPECT_FALSE(communicator.interleaves());
      test::Knower knower(communicator);
      for (const std::size_t elements : {0, 1, 357, 358, 359, 30'000}) {
        for (const ElementType type : kIntegers) knower.sum(type, elements);
        knower.bit_or(elements);
      }
      EXPECT_EQ(knower.complaint(), "");
    }));
    EXPECT_EQ(network.tally().dropped, aggregator::Tally{}.dropped);
  }
}

TEST(SwitchTransport, CombinesACrowdOf64) {
  BadNetwork network;
  auto all = network.join_all(64);
  expect_no_errors(run_crowd(all, [](Communicator& communicator) {
    test::Knower knower(communicator);
    knower.sum(ElementType::int64, 1000);
    knower.bit_or(100);
    EXPECT_EQ(knower.complaint(), "");
  }));
}

// Several of one exchange are under way at once, and share the window.
TEST(SwitchTransport, CollectivesOverlap) {
  BadNetwork network;
  auto all = network.join_all(3);
  expect_no_errors(run_crowd(all, [](Communicator& communicator) {
    const std::uint32_t channel = communicator.open_channel();
    std::vector<std::vector<std::int32_t>> data;
    std::vector<Collective> asks(6);
    std::vector<std::unique_ptr<Operation>> operations;
    for (std::size_t i = 0; i < asks.size(); ++i) data.emplace_back(i * 4000 + 1, static_cast<std::int32_t>(i));
    for (std::size_t i = 0; i < asks.size(); ++i) {
      asks[i].data = std::as_writable_bytes(std::span(data[i]));
      operations.push_back(communicator.start(asks[i], channel, test::kPatience));
    }
    for (std::size_t i = asks.size(); i-- > 0;) {
      while (!operations[i]->test()) communicator.relax();
      EXPECT_EQ(std::count(data[i].begin(), data[i].end(), static_cast<std::int32_t>(3 * i)),
                static_cast<std::ptrdiff_t>(data[i].size()));
    }
  }));
}

TEST(SwitchTransport, AllReducesGradients) {
  SeededDraw random(5);
  for (const Strategy strategy : {Strategy::automatic, Strategy::packed, Strategy::sketch}) {
    for (const ElementType type :
         {ElementType::float32, ElementType::float64, ElementType::bfloat16, ElementType::int32}) {
      BadNetwork network;
      auto all = network.join_all(3);
      const KnownStep step = KnownStep::draw({.elements = 20'011, .type = type, .pattern = Pattern::rows}, 3, random);
      expect_no_errors(run_crowd(all, [&](Communicator& port) {
        State state({.strategy = strategy, .chunk_bytes = 16'384});
        for (int i = 0; i < 3; ++i) {
          Array x(step.workers[port.rank()].dense(type), type);
          const Report report = allreduce(port, x.view(), state);
          EXPECT_EQ(difference(step.sum, type, x.bytes()), "") << name(strategy) << ", " << name(type);
          EXPECT_EQ(report.lost, 0u);
        }
      }));
    }
  }
}

TEST(SwitchTransport, RefusesFloatSumsAndMovedBuffers) {
  BadNetwork network;
  auto all = network.join_all(2);
  expect_no_errors(run_crowd(all, [](Communicator& port) {
    std::vector<float> x(10, 1.0F);
    Collective what{.type = ElementType::float32, .data = std::as_writable_bytes(std::span(x))};
    expect_refusal(ErrorCode::unsupported, "adds integers and ORs words", [&] { (void)port.start(what, 0, {}); });
    State state({.strategy = Strategy::dense});
    expect_refusal(ErrorCode::invalid_argument, "adds integers only", [&] { allreduce(port, x, state); });
    State moved({.strategy = Strategy::split});
    expect_refusal(ErrorCode::invalid_argument, "can only SUM and OR", [&] { allreduce(port, x, moved); });
    test::Knower knower(port);
    knower.sum(ElementType::int32, 100);
    EXPECT_EQ(knower.complaint(), "") << "and goes on";
  }));
}

TEST(SwitchTransport, RefusesOptionsThatCannotBeRight) {
  const SwitchOptions right{
      .address = "127.0.0.1:1", .secret = kSecret, .job = "j", .timeout = std::chrono::milliseconds(30)};
  const auto refused = [&](ErrorCode code, const std::string& fragment, auto change) {
    SwitchOptions wrong = right;
    change(wrong);
    expect_refusal(code, fragment, [&] { (void)make_switch(wrong); });
  };
  refused(ErrorCode::invalid_argument, "1 to 64 workers", [](auto& o) { o.size = 65; });
  refused(ErrorCode::invalid_argument, "not one of 1", [](auto& o) { o.rank = 1; });
  refused(ErrorCode::invalid_argument, "secret", [](auto& o) { o.secret = ""; });
  refused(ErrorCode::invalid_argument, "can be guessed", [](auto& o) { o.secret = "secret"; });
  refused(ErrorCode::invalid_argument, "name", [](auto& o) { o.job = ""; });
  refused(ErrorCode::invalid_argument, "63 bytes at most", [](auto& o) { o.job = std::string(64, 'j'); });
  refused(ErrorCode::timeout, "did not answer", [](auto& o) { o.job = std::string(63, 'j'); });
  refused(ErrorCode::timeout, "did not answer", [](auto& o) { o.secret += " \r\n"; });
  refused(ErrorCode::invalid_argument, "slots", [](auto& o) { o.slots = 0; });
  refused(ErrorCode::invalid_argument, "Write it as host:port", [](auto& o) { o.address = "no such host:x"; });
  refused(ErrorCode::invalid_argument, "leaves no room", [](auto& o) { o.mtu = 50; });
  refused(ErrorCode::timeout, "did not answer", [](auto&) {});
}

}  // namespace
}  // namespace peel::testing
