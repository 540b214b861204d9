// How workers get into a job: what the path carries, what the job gets, and one sentence within seconds for whatever
// keeps a worker out.
#include <gtest/gtest.h>

#include "refusal.h"
#include "switch/bad_network.h"
#include "transport/crowd.h"
#include "transport/known_collectives.h"

namespace peel::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using test::run_crowd;

SwitchOptions options(unsigned rank, unsigned size) {
  return {.address = "",
          .secret = kSecret,
          .job = "job",
          .rank = rank,
          .size = size,
          .slots = 16,
          .mtu = 0,
          .timeout = seconds(60)};
}

void expect_known_sums(std::vector<std::unique_ptr<Communicator>>& all) {
  const auto errors = run_crowd(all, [](Communicator& one) {
    test::Knower knower(one);
    knower.sum(ElementType::int32, 10'000);
    EXPECT_EQ(knower.complaint(), "");
  });
  for (const auto& error : errors) EXPECT_FALSE(error) << error->what();
}

// One worker for each MTU, in this order; what they were granted.
std::vector<SwitchGrant> grants(BadNetwork& network, const std::vector<unsigned>& mtus) {
  std::vector<SwitchGrant> all(mtus.size());
  std::vector<std::unique_ptr<Communicator>> workers(mtus.size());
  std::vector<std::thread> threads;
  for (unsigned rank = 0; rank < mtus.size(); ++rank) {
    threads.emplace_back([&, rank] {
      SwitchOptions mine = options(rank, static_cast<unsigned>(mtus.size()));
      mine.mtu = mtus[rank];
      mine.granted = [&](const SwitchGrant& grant) { all[rank] = grant; };
      workers[rank] = network.join(mine);
    });
    std::this_thread::sleep_for(milliseconds(20));
  }
  for (std::thread& thread : threads) thread.join();
  expect_known_sums(workers);
  return all;
}

// The sentence must come long before the time-out of a minute.
template <typename Call>
void expect_refusal_in_seconds(ErrorCode code, const std::string& fragment, Call&& call) {
  const steady_clock::time_point begin = steady_clock::now();
  expect_refusal(code, fragment, std::forward<Call>(call));
  EXPECT_LT(steady_clock::now() - begin, seconds(6));  // five, and one for a busy machine
}

TEST(SwitchJoin, TellsWhatAJobGot) {
  aggregator::Limits limits;
  limits.job_slots = 4;
  BadNetwork network(limits);
  const SwitchGrant grant = grants(network, {1500})[0];
  EXPECT_EQ(grant.slots_wanted, 16u);
  EXPECT_EQ(grant.slots, 4u);
  EXPECT_EQ(grant.mtu, 1500u);
  EXPECT_EQ(grant.packet_bytes, 1500u);
}

TEST(SwitchJoin, FindsWhatThePathCarries) {
  for (const auto& [path, found] : std::vector<std::pair<unsigned, unsigned>>{{9000, 9000}, {1480, 1448}, {600, 576}}) {
    BadNetwork network;
    network.set_path_mtu(path);
    EXPECT_EQ(grants(network, {9000, 9000})[1].packet_bytes, found) << path;
  }
}

TEST(SwitchJoin, AllTakeTheSmallestMtuInAnyOrder) {
  for (const std::vector<unsigned>& mtus : {std::vector<unsigned>{1500, 9000, 4000}, {9000, 4000, 1500}}) {
    BadNetwork network;
    for (const SwitchGrant& grant : grants(network, mtus)) EXPECT_EQ(grant.packet_bytes, 1500u);
  }
}

TEST(SwitchJoin, FindsThePathThroughLoss) {
  BadNetwork network({}, {.lost = 0.1, .doubled = 0.1, .late = 0.1, .damaged = 0.1});
  network.set_path_mtu(4000);
  for (const SwitchGrant& grant : grants(network, {9000, 9000, 9000})) EXPECT_LE(grant.packet_bytes, 4000u);
}

TEST(SwitchJoin, APathThatCarriesTooLittleIsNamed) {
  BadNetwork network;
  network.set_path_mtu(300);
  expect_refusal_in_seconds(ErrorCode::transport, "no packet of 576 bytes gets there and back",
                            [&] { (void)network.join(options(0, 1)); });
}

// Then it is not the path.
TEST(SwitchJoin, ASwitchThatStopsMeanwhileIsWaitedFor) {
  BadNetwork network;
  network.set_path_mtu(300);  // so that nobody is through before it stops
  std::jthread stops([&] {
    while (network.tally().received < 4) std::this_thread::sleep_for(milliseconds(1));
    network.set_switch(Process::stopped);
    network.set_path_mtu(1500);
    std::this_thread::sleep_for(milliseconds(3500));
    network.set_switch(Process::runs);
  });
  EXPECT_EQ(network.join(options(0, 1))->size(), 1u);
}

TEST(SwitchJoin, AnotherSecretIsNamed) {
  BadNetwork network;
  expect_refusal_in_seconds(ErrorCode::invalid_argument, "has another secret", [&] {
    SwitchOptions wrong = options(0, 1);
    wrong.secret = "abracadabra, abracadabra";
    (void)network.join(wrong);
  });
}

TEST(SwitchJoin, ATakenNameIsNamedAndItsJobGoesOn) {
  BadNetwork network;
  auto all = network.join_all(2);
  expect_refusal_in_seconds(ErrorCode::disagreement, "the name is taken by a job whose workers are alive",
                            [&] { (void)network.join(options(0, 2)); });
  expect_refusal_in_seconds(ErrorCode::disagreement, "the name is taken by a job whose workers are alive",
                            [&] { (void)network.join(options(2, 3)); });  // a rank that nobody has
  expect_known_sums(all);
}

TEST(SwitchJoin, OtherSizesAreNamed) {
  BadNetwork network;
  std::jthread waits([&] { EXPECT_THROW((void)network.join(1, 2, "job", seconds(2)), Error); });
  while (network.jobs() == 0) std::this_thread::sleep_for(milliseconds(1));
  expect_refusal_in_seconds(ErrorCode::disagreement, "different sizes", [&] { (void)network.join(options(0, 3)); });
}

// All of them were killed, and fewer start again at once: the switch finds out, and lets them in.
TEST(SwitchJoin, AJobMayStartAnewWithAnotherNumberOfWorkers) {
  BadNetwork network;
  auto all = network.join_all(3);
  for (unsigned rank = 0; rank < 3; ++rank) network.set_worker("job", rank, Process::killed);
  auto again = network.join_all(2);
  EXPECT_EQ(again[0]->size(), 2u);
}

TEST(SwitchJoin, ASwitchThatIsKilledMeanwhileIsNamed) {
  BadNetwork network;
  std::jthread kills([&] {
    std::this_thread::sleep_for(milliseconds(500));
    network.set_switch(Process::killed);
  });
  expect_refusal_in_seconds(ErrorCode::transport, "is gone", [&] { (void)network.join(options(0, 2)); });
}

TEST(SwitchJoin, ADrainingSwitchTakesNoJobs) {
  BadNetwork network;
  network.begin_to_drain();
  expect_refusal_in_seconds(ErrorCode::unsupported, "is being shut down", [&] { (void)network.join(options(0, 1)); });
}

// The caller may not want what it was granted.
TEST(SwitchJoin, AWorkerThatFailsAfterItJoinedLeaves) {
  BadNetwork network;
  SwitchOptions refusing = options(0, 1);
  refusing.granted = [](const SwitchGrant&) { throw std::runtime_error("too few slots"); };
  EXPECT_THROW((void)network.join(refusing), std::runtime_error);
  EXPECT_EQ(network.jobs(), 0u);
}

// Its place is free again after seconds, and whoever waits for all begins the job anew.
TEST(SwitchJoin, AWorkerThatDiesBeforeAllAreInGivesItsPlaceBack) {
  BadNetwork network;
  std::jthread dies([&] { EXPECT_THROW((void)network.join(0, 3, "job", seconds(1)), Error); });
  std::this_thread::sleep_for(milliseconds(100));
  network.set_worker("job", 0, Process::killed);
  std::vector<std::unique_ptr<Communicator>> all(3);
  std::jthread waits([&] { all[1] = network.join(options(1, 3)); });
  std::this_thread::sleep_for(milliseconds(3500));
  std::jthread again([&] { all[0] = network.join(options(0, 3)); });
  all[2] = network.join(options(2, 3));
  waits.join();
  again.join();
  expect_known_sums(all);
}

}  // namespace
}  // namespace peel::testing
