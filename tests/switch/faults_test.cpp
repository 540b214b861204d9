// Whatever the network, the workers and the switch do wrong: sums stay exact, or every worker of that job gets an error
// within its time-out; other jobs notice nothing.
#include <gtest/gtest.h>

#include "refusal.h"
#include "scale.h"
#include "switch/bad_network.h"
#include "transport/crowd.h"
#include "transport/known_collectives.h"

namespace peel::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using test::run_crowd;

constexpr milliseconds kTimeout{400};

// A few sums and ORs whose results are known.
std::string known_results(Communicator& communicator, std::size_t elements = 20'000) {
  test::Knower knower(communicator);
  for (int i = 0; i < 3; ++i) {
    knower.sum(ElementType::int32, elements);
    knower.bit_or(elements / 10);
    knower.sum(ElementType::int64, 500);
  }
  return knower.complaint();
}

void expect_all_known(std::vector<std::unique_ptr<Communicator>>& all) {
  for (const auto& error : run_crowd(all, [](Communicator& one) { EXPECT_EQ(known_results(one), ""); })) {
    EXPECT_FALSE(error) << error->what();
  }
}

// Sums until it fails.
void sum_on(Communicator& communicator, milliseconds timeout = kTimeout) {
  std::vector<std::int32_t> x(5000, 1);
  for (int i = 0; i < 100'000; ++i) {
    Collective what{.data = std::as_writable_bytes(std::span(x))};
    perform(communicator, what, 0, timeout);
  }
}

void expect_errors(const std::vector<std::optional<Error>>& errors, std::initializer_list<ErrorCode> codes) {
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_NE(std::find(codes.begin(), codes.end(), error->code()), codes.end()) << error->what();
    expect_sentence(error->what(), "switch");
  }
}

TEST(SwitchFaults, SumsAreExactOnAnyBadNetwork) {
  for (const double rate : {0.001, 0.01, 0.1}) {
    for (const Faults& faults : {Faults{.lost = rate}, Faults{.doubled = rate}, Faults{.late = rate},
                                 Faults{.damaged = rate}, Faults{rate, rate, rate, rate}}) {
      BadNetwork network({}, faults, static_cast<std::uint64_t>(rate * 1e6));
      auto all = network.join_all(3);
      expect_all_known(all);
      if (rate == 0.1 && faults.damaged != 0) {
        EXPECT_GT(network.tally().dropped[PEEL_DROP_CORRUPT], 0u);
      }
    }
  }
}

TEST(SwitchFaults, SignedSumsAreExactOnAnyBadNetwork) {
  aggregator::Limits limits;
  limits.sign = true;
  for (const Faults& faults : {Faults{}, Faults{.damaged = 0.1}, Faults{0.05, 0.05, 0.05, 0.05}}) {
    BadNetwork network(limits, faults);
    auto all = network.join_all(3);
    expect_all_known(all);
    if (faults.damaged == 0) {
      EXPECT_EQ(network.tally().dropped, aggregator::Tally{}.dropped);
    } else {
      EXPECT_GT(network.tally().dropped[PEEL_DROP_CORRUPT], 0u);
    }
  }
}

// Somebody who sees all packets sends others, with the sender's address and a check that anybody can make.
TEST(SwitchFaults, ForgedPacketsOfSignedJobsAreDropped) {
  aggregator::Limits limits;
  limits.sign = true;
  BadNetwork network(limits);
  std::uint64_t forged = 0;
  network.on_arrival = [&](aggregator::Aggregator& aggregator, const aggregator::Endpoint& from,
                           const Bytes& datagram) {
    if (is_control(datagram)) return;
    peel_packet header;
    std::memcpy(&header, datagram.data(), sizeof header);
    const auto outcome = aggregator.on_data(0, from, to_bytes(header, std::vector<std::uint32_t>(header.words, 7)), {});
    EXPECT_EQ(outcome.to, aggregator::Outcome::To::nobody);
    ++forged;
  };
  network.forge_results = true;
  auto all = network.join_all(2);
  expect_all_known(all);
  EXPECT_GT(forged, 0u);
  EXPECT_EQ(network.tally().dropped[PEEL_DROP_CORRUPT], forged);
}

TEST(SwitchFaults, SumsAreExactOverSeveralLanes) {
  aggregator::Limits limits;
  limits.lanes = 3;
  BadNetwork network(limits, {.lost = 0.03, .doubled = 0.1, .late = 0.2});
  auto all = network.join_all(4);
  expect_all_known(all);
}

// At 1% in each direction, nearly nothing is sent in vain: no storm of repetitions.
TEST(SwitchFaults, RepetitionsAreFew) {
  const auto packets = [](double lost) {
    BadNetwork network({}, {.lost = lost});
    auto all = network.join_all(2, "job", 64);
    expect_all_known(all);
    return static_cast<double>(network.packets_sent());
  };
  EXPECT_LT(packets(0.01), 1.5 * packets(0));
}

TEST(SwitchFaults, JobsDoNotNoticeEachOther) {
  BadNetwork network({}, {.lost = 0.01});
  auto first = network.join_all(2, "first");
  auto second = network.join_all(3, "second");
  std::thread other([&] { expect_all_known(second); });
  expect_all_known(first);
  other.join();
}

TEST(SwitchFaults, AWorkerThatDiesIsAnErrorForItsJobAlone) {
  BadNetwork network;
  auto all = network.join_all(3, "mortal");
  auto others = network.join_all(2, "others");
  std::thread bystander([&] { expect_all_known(others); });
  const steady_clock::time_point begin = steady_clock::now();
  const auto errors = run_crowd(all, [](Communicator& communicator) {
    if (communicator.rank() != 1) return sum_on(communicator);
    throw Error(ErrorCode::timeout, "This one never comes, and does not leave the switch either.");
  });
  bystander.join();
  expect_errors(errors, {ErrorCode::timeout, ErrorCode::transport});
  EXPECT_LT(steady_clock::now() - begin, 20 * kTimeout);
}

TEST(SwitchFaults, AWorkerThatLeavesIsNoticedAtOnce) {
  BadNetwork network;
  auto all = network.join_all(3);
  const steady_clock::time_point begin = steady_clock::now();
  const auto errors = run_crowd(all, [&](Communicator& communicator) {
    if (communicator.rank() != 1) return sum_on(communicator, std::chrono::seconds(60));
    test::Knower knower(communicator);
    all[1].reset();
    throw Error(ErrorCode::transport, "This one has left the switch.");
  });
  expect_errors(errors, {ErrorCode::transport});
  EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(30));
}

TEST(SwitchFaults, AWorkerThatLagsIsWaitedFor) {
  BadNetwork network;
  auto all = network.join_all(3);
  const auto errors = run_crowd(all, [](Communicator& communicator) {
    if (communicator.rank() == 2) std::this_thread::sleep_for(milliseconds(1500));
    EXPECT_EQ(known_results(communicator, 50'000), "");
  });
  for (const auto& error : errors) EXPECT_FALSE(error) << error->what();
  EXPECT_LT(network.tally().repeated, 500u) << "probes now and then, not the whole window again and again";
}

// A worker is killed, so it says nothing; its next run joins under its old name.
TEST(SwitchFaults, AWorkerThatStartsAnewEndsTheOldJobAndBeginsANewOne) {
  BadNetwork network;
  auto all = network.join_all(2);
  network.set_worker("job", 1, Process::killed);
  const auto errors = run_crowd(all, [&](Communicator& communicator) {
    if (communicator.rank() == 0) {
      expect_refusal(ErrorCode::transport, "joined it anew", [&] { sum_on(communicator, std::chrono::seconds(60)); });
    }
    const auto again = network.join(communicator.rank(), 2);
    EXPECT_EQ(known_results(*again), "");
  });
  for (const auto& error : errors) EXPECT_FALSE(error) << error->what();
}

TEST(SwitchFaults, ARestartedSwitchIsAnErrorAndThenServesAgain) {
  BadNetwork network;
  auto all = network.join_all(2);
  const auto errors = run_crowd(all, [&](Communicator& communicator) {
    EXPECT_EQ(known_results(communicator), "");
    if (communicator.rank() == 0) network.restart();
    sum_on(communicator, std::chrono::seconds(60));
  });
  expect_errors(errors, {ErrorCode::transport});
  for (const auto& error : errors) expect_sentence(error->what(), "does not know this job");
  all.clear();
  all = network.join_all(2);
  expect_all_known(all);
}

TEST(SwitchFaults, DifferentLengthsAreToldToAll) {
  BadNetwork network;
  auto all = network.join_all(3);
  const auto errors = run_crowd(all, [](Communicator& communicator) {
    std::vector<std::int32_t> x(1000 + communicator.rank() / 2, 1);
    Collective what{.data = std::as_writable_bytes(std::span(x))};
    perform(communicator, what, 0, std::chrono::seconds(20));
  });
  expect_errors(errors, {ErrorCode::disagreement, ErrorCode::transport, ErrorCode::timeout});
  EXPECT_TRUE(std::any_of(errors.begin(), errors.end(),
                          [](const auto& error) { return error->code() == ErrorCode::disagreement; }));
}

TEST(SwitchFaults, AJobThatFindsNoRoomIsToldSoAtOnce) {
  aggregator::Limits limits;
  limits.jobs = 1;
  limits.slots = 16;
  BadNetwork network(limits);
  auto first = network.join_all(1, "first", 16);
  expect_refusal(ErrorCode::unsupported, "Use another transport",
                 [&] { (void)network.join(0, 1, "second", std::chrono::seconds(60)); });
  first.clear();
  EXPECT_TRUE(network.join(0, 1, "second"));
}

TEST(SwitchFaults, AWorkerThatDoesNotJoinIsNamed) {
  BadNetwork network;
  expect_refusal(ErrorCode::timeout, "Workers 0, 2 of 3", [&] { (void)network.join(1, 3, "job", milliseconds(100)); });
}

// Everything that was ever sent arrives again, from there and from elsewhere, at any time after.
TEST(SwitchFaults, ReplaysAndForgeriesChangeNothing) {
  BadNetwork network;
  std::vector<std::pair<aggregator::Endpoint, Bytes>> seen;
  SeededDraw random(1);
  network.on_arrival = [&](aggregator::Aggregator& aggregator, const aggregator::Endpoint& from,
                           const Bytes& datagram) {
    for (int i = 0; i < 4 && !seen.empty(); ++i) {
      auto [sender, replayed] = seen[random.below(seen.size())];
      if (is_control(replayed)) continue;
      const std::uint64_t how = random.below(4);
      peel_packet header;
      std::memcpy(&header, replayed.data(), sizeof header);
      std::vector<std::uint32_t> words(header.words);
      std::memcpy(words.data(), replayed.data() + sizeof header, 4 * words.size());
      if (how == 0 || how == 1) sender.port = 1;  // a stranger who saw the cookie
      if (how == 1) header.round += 2;            // and knows what comes next
      if (how == 2) header.worker ^= 1;           // a worker as another one
      if (how == 3) header.cookie ^= 1;           // a guess
      const auto outcome = aggregator.on_data(0, sender, to_bytes(header, words), {});
      EXPECT_NE(outcome.to, aggregator::Outcome::To::everybody);
      // The same bytes from the same sender: late, or again.
      const auto again = aggregator.on_data(0, seen[random.below(seen.size())].first, replayed, {});
      EXPECT_NE(again.to, aggregator::Outcome::To::everybody);
    }
    seen.emplace_back(from, datagram);
  };
  auto all = network.join_all(2);
  expect_all_known(all);
  EXPECT_GT(network.tally().dropped[PEEL_DROP_FORGED], 100u);
  EXPECT_GT(network.tally().dropped[PEEL_DROP_UNKNOWN_JOB], 100u);
  EXPECT_GT(network.tally().dropped[PEEL_DROP_STALE], 100u);
}

// Noise between all packets of a job: random bytes, right headers with wrong lengths and versions, unknown jobs.
TEST(SwitchFaults, AFloodChangesNothing) {
  BadNetwork network;
  SeededDraw random(2);
  network.on_arrival = [&](aggregator::Aggregator& aggregator, const aggregator::Endpoint& from,
                           const Bytes& datagram) {
    for (int i = 0; i < 20; ++i) {
      Bytes noise = random.one_in(2) ? datagram : Bytes(random.below(200));
      if (noise.size() > 8) noise[random.below(8)] = static_cast<std::uint8_t>(random.bits());
      noise.resize(noise.size() - random.below(std::min<std::uint64_t>(noise.size() + 1, 9)));
      if (is_control(noise)) {
        if (noise == datagram) continue;
        const auto reply = detail::read_control(aggregator.admission().take({from, {}, noise}, {}));
        EXPECT_TRUE(!reply || reply->verb == PEEL_VERB_CHALLENGE || reply->verb == PEEL_VERB_REFUSED);
      } else if (noise != datagram) {
        EXPECT_NE(aggregator.on_data(0, from, noise, {}).to, aggregator::Outcome::To::everybody);
      }
    }
  };
  auto all = network.join_all(2);
  expect_all_known(all);
  EXPECT_GT(network.tally().dropped[PEEL_DROP_MALFORMED], 1000u);
}

}  // namespace
}  // namespace peel::testing
