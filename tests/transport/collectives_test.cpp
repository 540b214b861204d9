// Every collective on any number of workers and any length gives what it promises, bit for bit.
#include <gtest/gtest.h>

#include <random>

#include "refusal.h"
#include "transport/crowd.h"
#include "transport/known_collectives.h"

namespace peel {
namespace {

using test::run_crowd;

void expect_no_errors(const std::vector<std::optional<Error>>& errors) {
  for (const auto& error : errors) {
    EXPECT_FALSE(error) << error->what();
  }
}

TEST(Collectives, GiveKnownResultsOnAnyNumberOfWorkers) {
  for (unsigned workers = 1; workers <= 9; ++workers) {
    expect_no_errors(run_crowd(workers, [&](Communicator& communicator) {
      EXPECT_EQ(test::perform_known_collectives(communicator, workers <= 4 ? 200'003 : 31'000), "");
    }));
  }
}

TEST(Collectives, GiveKnownResultsInACrowd) {
  expect_no_errors(run_crowd(64, [](Communicator& communicator) {
    EXPECT_EQ(communicator.size(), 64u);
    EXPECT_EQ(communicator.transport(), "inprocess");
    test::Knower knower(communicator);
    for (const std::size_t elements : {1, 77, 2000}) {
      knower.sum(ElementType::float32, elements);
      knower.bit_or(elements);
      knower.all_to_all(elements);
      knower.all_gather(elements);
    }
    EXPECT_EQ(knower.complaint(), "");
  }));
}

// Data that begin anywhere their elements may.
TEST(Collectives, NeedNoAlignmentBeyondTheElement) {
  expect_no_errors(run_crowd(3, [](Communicator& communicator) {
    std::vector<float> x(20'001, 1.0F);
    Collective what{.type = ElementType::float32, .data = std::as_writable_bytes(std::span(x).subspan(1))};
    perform(communicator, what, communicator.open_channel(), test::kPatience);
    EXPECT_EQ(x[0], 1.0F);
    EXPECT_EQ(std::count(x.begin() + 1, x.end(), 3.0F), 20'000);
  }));
}

TEST(Collectives, RefuseDeviceMemoryAndGoOn) {
  expect_no_errors(run_crowd(2, [](Communicator& communicator) {
    std::int32_t x = 1;
    Collective what{.data = std::as_writable_bytes(std::span(&x, 1)), .memory = Memory::device};
    const std::uint32_t channel = communicator.open_channel();
    testing::expect_refusal(ErrorCode::unsupported, "use make_nccl",
                            [&] { perform(communicator, what, channel, test::kPatience); });
    what.memory = Memory::host;
    perform(communicator, what, channel, test::kPatience);
    EXPECT_EQ(x, 2);
  }));
}

// Half the workers begin and drive their collectives in another order than the others.
TEST(Collectives, OfDifferentChannelsRunInAnyOrder) {
  constexpr std::size_t kChannels = 7;
  expect_no_errors(run_crowd(4, [](Communicator& communicator) {
    std::vector<std::uint32_t> channels;
    for (std::size_t i = 0; i < kChannels; ++i) channels.push_back(communicator.open_channel());
    std::vector<std::size_t> order(kChannels);
    for (std::size_t i = 0; i < kChannels; ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), std::mt19937(communicator.rank()));

    std::vector<std::vector<std::int32_t>> data(kChannels);
    std::vector<Collective> asks(kChannels);
    std::vector<std::unique_ptr<Operation>> operations;
    for (const std::size_t i : order) {
      data[i].assign(1 + i * i * 3000, static_cast<std::int32_t>(i + communicator.rank()));
      asks[i].data = std::as_writable_bytes(std::span(data[i]));
      operations.push_back(communicator.start(asks[i], channels[i], test::kPatience));
    }
    std::size_t complete = 0;
    while (complete < kChannels) {
      complete = 0;
      for (const auto& operation : operations) complete += operation->test() ? 1 : 0;
      communicator.relax();
    }
    for (std::size_t i = 0; i < kChannels; ++i) {
      const auto expected = static_cast<std::int32_t>(4 * i + 6);
      EXPECT_EQ(std::count(data[i].begin(), data[i].end(), expected), static_cast<std::ptrdiff_t>(data[i].size()));
    }
  }));
}

// Collectives of one channel, begun together.
TEST(Collectives, OfOneChannelOverlap) {
  expect_no_errors(run_crowd(3, [](Communicator& communicator) {
    const std::uint32_t channel = communicator.open_channel();
    std::vector<double> x(50'000, 1.0);
    std::vector<std::uint64_t> words(9, std::uint64_t{1} << communicator.rank());
    Collective sum{.type = ElementType::float64, .data = std::as_writable_bytes(std::span(x)), .sequence = 0};
    Collective both{.kind = Collective::Kind::bit_or, .data = std::as_writable_bytes(std::span(words)), .sequence = 1};
    const auto first = communicator.start(sum, channel, test::kPatience);
    const auto second = communicator.start(both, channel, test::kPatience);
    while (!second->test()) communicator.relax();
    while (!first->test()) communicator.relax();
    EXPECT_EQ(words, std::vector<std::uint64_t>(9, 7));
    EXPECT_EQ(std::count(x.begin(), x.end(), 3.0), 50'000);
  }));
}

// Two communicators of the same workers, each used by a thread of its own and a third by both in turn.
TEST(Collectives, OnTwoCommunicatorsRunInTwoThreads) {
  constexpr unsigned kWorkers = 3;
  std::vector<std::unique_ptr<Communicator>> first = make_inprocess(kWorkers);
  std::vector<std::unique_ptr<Communicator>> second = make_inprocess(kWorkers);
  const auto work = [](Communicator& communicator) {
    EXPECT_EQ(test::perform_known_collectives(communicator, 5000), "");
  };
  std::thread other([&] { expect_no_errors(run_crowd(second, work)); });
  expect_no_errors(run_crowd(first, work));
  other.join();
}

// One communicator in two threads of every worker: each thread has its channel.
TEST(Collectives, OnOneCommunicatorRunInTwoThreads) {
  expect_no_errors(run_crowd(3, [](Communicator& communicator) {
    const std::uint32_t channels[] = {communicator.open_channel(), communicator.open_channel()};
    const auto work = [&](std::uint32_t channel) {
      for (std::uint32_t step = 0; step < 20; ++step) {
        std::vector<std::int64_t> x(10'000, step + channel);
        Collective what{.type = ElementType::int64, .data = std::as_writable_bytes(std::span(x)), .sequence = step};
        perform(communicator, what, channel, test::kPatience);
        EXPECT_EQ(std::count(x.begin(), x.end(), 3 * (step + channel)), 10'000);
      }
    };
    std::thread other(work, channels[1]);
    work(channels[0]);
    other.join();
  }));
}

TEST(Collectives, RefuseWhatCannotBeRight) {
  const std::vector<std::unique_ptr<Communicator>> alone = make_inprocess(1);
  Communicator& communicator = *alone.front();
  alignas(8) std::array<std::byte, 16> memory{};
  const auto code = [&](Collective what) {
    try {
      perform(communicator, what, 0, test::kPatience);
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::unsupported;
  };
  EXPECT_EQ(code({.type = ElementType::float32, .data = std::span(memory).first(6)}), ErrorCode::invalid_argument);
  EXPECT_EQ(code({.type = ElementType::float32, .data = std::span(memory).subspan(2, 4)}), ErrorCode::invalid_argument);
  EXPECT_EQ(code({.kind = Collective::Kind::all_to_all}), ErrorCode::invalid_argument);
  EXPECT_EQ(code({.kind = Collective::Kind::all_gather}), ErrorCode::invalid_argument);
  EXPECT_THROW((void)make_inprocess(0), Error);
  EXPECT_THROW((void)make_inprocess(2, {.bytes_per_second = -1}), Error);
}

// From the first worker's beginning to the last one's end, each link carries what the others sent: however busy the
// machine is, that takes its time.
TEST(Link, WithARateIsNeverFasterThanThat) {
  using Clock = std::chrono::steady_clock;
  constexpr unsigned kWorkers = 3;
  constexpr double kRate = 20e6;
  constexpr std::size_t kBytes = 300'000;  // several segments
  std::vector<std::unique_ptr<Communicator>> communicators = make_inprocess(kWorkers, {.bytes_per_second = kRate});
  std::vector<Clock::time_point> begins(kWorkers), ends(kWorkers);
  expect_no_errors(run_crowd(communicators, [&](Communicator& communicator) {
    const unsigned rank = communicator.rank();
    EXPECT_EQ(test::perform_known_collectives(communicator, 5000), "");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // an idle link saves nothing up
    const std::vector<std::byte> mine(kBytes, static_cast<std::byte>(rank));
    Collective all{.kind = Collective::Kind::all_gather, .send = {mine}};
    all.received.resize(kWorkers);
    begins[rank] = Clock::now();
    perform(communicator, all, communicator.open_channel(), test::kPatience);
    ends[rank] = Clock::now();
    for (unsigned peer = 0; peer < kWorkers; ++peer) {
      if (peer == rank) continue;
      ASSERT_EQ(all.received[peer].size(), kBytes);
      EXPECT_EQ(std::count(all.received[peer].data(), all.received[peer].data() + kBytes, static_cast<std::byte>(peer)),
                kBytes);
    }
  }));
  const std::chrono::duration<double> taken =
      *std::max_element(ends.begin(), ends.end()) - *std::min_element(begins.begin(), begins.end());
  EXPECT_GE(taken.count(), (kWorkers - 1) * kBytes / kRate);
}

// What a worker sent before it went is still under way then, and arrives.
TEST(Link, WithARateDeliversWhatWasSentBeforeAWorkerWent) {
  std::vector<std::unique_ptr<Communicator>> communicators = make_inprocess(2, {.bytes_per_second = 100e3});
  expect_no_errors(run_crowd(communicators, [&](Communicator& communicator) {
    const std::vector<std::byte> mine(communicator.rank() == 0 ? 10 : 5'000, std::byte{7});  // 50 ms
    Collective all{.kind = Collective::Kind::all_gather, .send = {mine}};
    all.received.resize(2);
    perform(communicator, all, communicator.open_channel(), test::kPatience);
    const bool last = communicator.rank() == 0;
    EXPECT_EQ(all.received[1 - communicator.rank()].size(), last ? 5'000U : 10U);
    if (!last) communicators[1].reset();
  }));
}

TEST(Link, IsTheSameOnEveryWorker) {
  std::vector<LinkFacts> all(4);
  expect_no_errors(run_crowd(4, [&](Communicator& communicator) {
    EXPECT_FALSE(communicator.link());
    all[communicator.rank()] = measure_link(communicator);
    EXPECT_TRUE(communicator.link());
  }));
  for (const LinkFacts& facts : all) {
    EXPECT_EQ(std::memcmp(&facts, all.data(), sizeof facts), 0);
    EXPECT_GT(facts.latency_s, 0);
    EXPECT_GT(facts.bytes_per_second, 1e6);
    EXPECT_GT(facts.copy_bytes_per_second, 1e7);
  }
}

}  // namespace
}  // namespace peel
