// Signs of life: the death of a worker or of the switch is an error of its jobs within seconds and has a name, and
// nobody who is only slow is taken for dead. Time-outs of collectives are a minute here: no error comes from them.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "refusal.h"
#include "switch/bad_network.h"
#include "switch/udp/plane.h"
#include "transport/crowd.h"
#include "transport/known_collectives.h"

namespace peel::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using test::run_crowd;

void sum_once(Communicator& communicator, milliseconds timeout = seconds(60)) {
  std::vector<std::int32_t> x(5000, 1);
  Collective what{.data = std::as_writable_bytes(std::span(x))};
  perform(communicator, what, 0, timeout);
}

void sum_on(Communicator& communicator) {
  while (true) sum_once(communicator);
}

void sum_for(Communicator& communicator, milliseconds time) {
  test::Knower knower(communicator);
  // All must do the same number, so the time is only about right.
  for (milliseconds passed{}; passed < time; passed += milliseconds(50)) {
    knower.sum(ElementType::int32, 2000);
    std::this_thread::sleep_for(milliseconds(50));
  }
  EXPECT_EQ(knower.complaint(), "");
}

void expect_none(const std::vector<std::optional<Error>>& errors) {
  for (const auto& error : errors) EXPECT_FALSE(error) << error->what();
}

// Everybody sums until it fails, and something happens after a moment. The errors of all, each with this fragment.
template <typename Happen>
void expect_noticed(std::vector<std::unique_ptr<Communicator>>& all, const std::string& fragment, Happen happen,
                    std::optional<unsigned> but = std::nullopt) {
  steady_clock::time_point begin;
  std::jthread later([&] {
    std::this_thread::sleep_for(milliseconds(200));
    begin = steady_clock::now();
    happen();
  });
  const auto errors = run_crowd(all, [&](Communicator& one) {
    if (one.rank() != but) sum_on(one);
  });
  later.join();
  EXPECT_LT(steady_clock::now() - begin, seconds(8));
  for (unsigned rank = 0; rank < errors.size(); ++rank) {
    if (rank == but) continue;
    ASSERT_TRUE(errors[rank]);
    EXPECT_EQ(errors[rank]->code(), ErrorCode::transport);
    expect_sentence(errors[rank]->what(), fragment);
  }
}

// A switch with real sockets.
class Served {
 public:
  Served() {
    // A free port, with a free one behind it: what is taken by others is not ours to choose.
    for (int attempt = 0; !plane_; ++attempt) {
      try {
        plane_ = std::make_unique<aggregator::UdpPlane>(detail::resolve("127.0.0.1:0"), aggregator::Limits{},
                                                        aggregator::Keys{aggregator::Secrets(kSecret), {}}, 1);
      } catch (const Error&) {
        if (attempt == 50) throw;
      }
    }
    thread_ = std::thread([this] { plane_->run(orders_); });
  }
  ~Served() {
    orders_.stop = true;
    thread_.join();
  }
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;

  [[nodiscard]] std::string address() const { return plane_->address().text(); }

 private:
  std::unique_ptr<aggregator::UdpPlane> plane_;
  aggregator::Orders orders_;
  std::thread thread_;
};

TEST(SwitchLife, AKilledWorkerIsNamedToItsJobAlone) {
  BadNetwork network;
  auto all = network.join_all(3, "mortal");
  auto others = network.join_all(2, "others");
  std::jthread bystander([&] { expect_none(run_crowd(others, [](Communicator& one) { sum_for(one, seconds(3)); })); });
  expect_noticed(
      all, "Worker 1 of job 'mortal' is gone: its process ended or it left",
      [&] { network.set_worker("mortal", 1, Process::killed); }, 1);
}

// Hosts quote little of what comes to closed ports, so connections tell as well.
TEST(SwitchLife, DeathIsNoticedByARefusedConnectionAlone) {
  for (const bool of_switch : {false, true}) {
    BadNetwork network;
    network.quotes = false;
    network.set_connections(BadNetwork::Connections::answered);
    auto all = network.join_all(2);
    if (of_switch) {
      expect_noticed(all, "nobody listens at test:1 any more", [&] { network.set_switch(Process::killed); });
    } else {
      expect_noticed(
          all, "Worker 1 of job 'job' is gone", [&] { network.set_worker("job", 1, Process::killed); }, 1);
    }
  }
}

TEST(SwitchLife, AWorkerThatLeftIsNamed) {
  BadNetwork network;
  auto all = network.join_all(3);
  expect_noticed(
      all, "Worker 2 of job 'job' is gone", [&] { all[2].reset(); }, 2);
}

TEST(SwitchLife, AKilledSwitchIsNamed) {
  BadNetwork network;
  auto all = network.join_all(2);
  expect_noticed(all, "is gone: nobody listens at test:1 any more", [&] { network.set_switch(Process::killed); });
}

TEST(SwitchLife, ADrainingSwitchIsNamed) {
  BadNetwork network;
  auto all = network.join_all(2);
  expect_noticed(all, "is being shut down", [&] { network.drain(); });
}

// A worker that computes learns it when it begins its next collective.
TEST(SwitchLife, NoCollectiveBeginsWithoutAWorkerOrASwitch) {
  const auto refused = [](const std::string& fragment, auto happen) {
    BadNetwork network;
    auto all = network.join_all(2);
    happen(network, all);
    const steady_clock::time_point end = steady_clock::now() + seconds(8);
    // The other one does not sum, so one that began in time waits for the same news.
    const auto error = run_crowd(all, [&](Communicator& one) {
      if (one.rank() == 0) sum_once(one);
    })[0];
    ASSERT_TRUE(error);
    expect_sentence(error->what(), fragment);
    EXPECT_LT(steady_clock::now(), end);
    expect_refusal(ErrorCode::transport, fragment, [&] { sum_once(*all[0]); });
  };
  refused("Worker 1 of job 'job' is gone",
          [](BadNetwork& network, auto&) { network.set_worker("job", 1, Process::killed); });
  refused("nobody listens", [](BadNetwork& network, auto&) { network.set_switch(Process::killed); });
  refused("is being shut down", [](BadNetwork& network, auto&) { network.drain(); });
  refused("does not know this job", [](BadNetwork& network, auto&) { network.restart(); });
}

// The refusal of a packet of an unknown job cannot be signed, so it is the sign of life that tells.
TEST(SwitchLife, ARestartedSwitchOfSignedJobsIsNamed) {
  aggregator::Limits limits;
  limits.sign = true;
  BadNetwork network(limits);
  auto all = network.join_all(2);
  expect_noticed(all, "does not know this job", [&] { network.restart(); });
}

// Nor if connections tell: the kernel takes them for a stopped process, and those that a firewall refuses prove
// nothing.
void expect_nobody_gone_who_is_stopped(BadNetwork::Connections connections) {
  BadNetwork network;
  network.set_connections(connections);
  auto all = network.join_all(2);
  std::jthread stops([&] {
    std::this_thread::sleep_for(milliseconds(200));
    network.set_worker("job", 1, Process::stopped);
    std::this_thread::sleep_for(milliseconds(2500));
    network.set_worker("job", 1, Process::runs);
    std::this_thread::sleep_for(milliseconds(200));
    network.set_switch(Process::stopped);
    std::this_thread::sleep_for(milliseconds(2500));
    network.set_switch(Process::runs);
  });
  expect_none(run_crowd(all, [](Communicator& one) { sum_for(one, seconds(2)); }));
  stops.join();
  expect_none(run_crowd(all, [](Communicator& one) { sum_for(one, milliseconds(100)); }));
}

TEST(SwitchLife, NobodyWhoIsStoppedForAWhileIsGone) {
  expect_nobody_gone_who_is_stopped(BadNetwork::Connections::lost);
}
TEST(SwitchLife, NobodyWhoIsStoppedIsGoneWhereConnectionsAreTaken) {
  expect_nobody_gone_who_is_stopped(BadNetwork::Connections::answered);
}
TEST(SwitchLife, NobodyWhoIsStoppedIsGoneWhereAFirewallRefusesConnections) {
  expect_nobody_gone_who_is_stopped(BadNetwork::Connections::refused);
}

// Whoever computes exchanges signs of life all the same.
TEST(SwitchLife, AWorkerThatComputesIsNotGone) {
  aggregator::Limits limits;
  limits.silence = seconds(3);  // a busy machine may leave a thread waiting for a second
  BadNetwork network(limits, {.lost = 0.1, .doubled = 0.1, .late = 0.1, .damaged = 0.1});
  auto all = network.join_all(2);
  std::this_thread::sleep_for(milliseconds(4500));
  expect_none(run_crowd(all, [](Communicator& one) { sum_for(one, milliseconds(200)); }));
}

TEST(SwitchLife, SilenceForTooLongIsDeath) {
  aggregator::Limits limits;
  limits.silence = seconds(1);
  {
    BadNetwork network(limits);
    auto all = network.join_all(2);
    expect_noticed(
        all, "Worker 1 of job 'job' is gone", [&] { network.set_worker("job", 1, Process::stopped); }, 1);
  }
  BadNetwork network(limits);
  auto all = network.join_all(2);
  expect_noticed(all, "is gone: it did not answer for 1 s", [&] { network.set_switch(Process::stopped); });
}

// A worker that the switch gave up learns that it was it.
TEST(SwitchLife, AWorkerThatWasGivenUpLearnsIt) {
  BadNetwork network;
  network.on_arrival = [](aggregator::Aggregator& aggregator, const aggregator::Endpoint&, const Bytes& datagram) {
    const auto control = detail::read_control(datagram);
    if (!control || control->verb != PEEL_VERB_KEEPALIVE || control->worker != 1 || control->sequence < 3) return;
    aggregator.jobs().leave(control->job, control->cookie, control->worker, control->incarnation);
  };
  auto all = network.join_all(2);
  expect_refusal(ErrorCode::transport, "which is this one", [&] { sum_once(*all[1]); });
}

// The network may say what it wants: as long as the switch answers, it is there.
TEST(SwitchLife, ClaimsOfTheNetworkAloneKillNobody) {
  BadNetwork network;
  network.on_arrival = [&](aggregator::Aggregator& aggregator, const aggregator::Endpoint& from,
                           const Bytes& datagram) {
    network.claim_refused(from, datagram);
    network.claim_refused(from, Bytes(20));
    aggregator.admission().take_refused(datagram);
  };
  auto all = network.join_all(2);
  expect_none(run_crowd(all, [](Communicator& one) { sum_for(one, seconds(3)); }));
}

// Results that were lost on their way are still in the switch when the first workers have theirs, and leave.
TEST(SwitchLife, WhoeverLeavesAfterTheLastCollectiveHurtsNobody) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    BadNetwork network({}, {.lost = 0.2}, seed);
    auto all = network.join_all(3);
    expect_none(run_crowd(all, [&](Communicator& one) {
      const unsigned rank = one.rank();
      test::Knower knower(one);
      knower.sum(ElementType::int32, 5000);
      EXPECT_EQ(knower.complaint(), "");
      all[rank].reset();
    }));
  }
}

TEST(SwitchLife, ATimeOutTellsOfPacketsThatDoNotGetThrough) {
  BadNetwork network;
  auto all = network.join_all(2);
  network.set_path_mtu(1000);
  int timed_out = 0;
  for (const auto& error : run_crowd(all, [](Communicator& one) { sum_once(one, milliseconds(1000)); })) {
    ASSERT_TRUE(error);
    if (error->code() != ErrorCode::timeout) continue;  // it heard first that the other one left because of it
    ++timed_out;
    expect_sentence(error->what(), "packets of 1500 bytes");
  }
  EXPECT_GE(timed_out, 1);
}

TEST(SwitchLife, ATimeOutTellsOfASwitchThatIsSilent) {
  BadNetwork network;
  auto all = network.join_all(1);
  network.set_switch(Process::stopped);
  expect_refusal(ErrorCode::timeout, "answers no sign of life", [&] { sum_once(*all[0], milliseconds(3000)); });
}

// A process that was forked off has what this thread has. If it held the sockets of the signs of life, nobody would
// learn from the host that the worker's own process is dead.
TEST(SwitchLife, ChildrenDoNotHoldTheSocketsOfASignOfLife) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer knows one table of files only";
#endif
  const auto sockets = [](int option, int wanted) {
    int count = 0;
    for (int descriptor = 0; descriptor < 1024; ++descriptor) {
      int value = 0;
      socklen_t length = sizeof value;
      if (getsockopt(descriptor, SOL_SOCKET, option, &value, &length) == 0 && value == wanted) ++count;
    }
    return count;
  };
  Served served;
  const int datagrams = sockets(SO_TYPE, SOCK_DGRAM);
  const int listening = sockets(SO_ACCEPTCONN, 1);
  auto worker = make_switch({.address = served.address(), .secret = kSecret, .job = "job"});
  EXPECT_EQ(sockets(SO_TYPE, SOCK_DGRAM), datagrams + 1) << "that of the data";
  EXPECT_EQ(sockets(SO_ACCEPTCONN, 1), listening);
}

// Loaders of data are processes that are forked off: they end, and the worker's job goes on.
TEST(SwitchLife, AForkedProcessEndsNothing) {
  Served served;
  auto worker = make_switch({.address = served.address(), .secret = kSecret, .job = "job"});
  const pid_t child = fork();
  if (child == 0) {
    worker.reset();
    _exit(0);
  }
  int status = -1;
  const steady_clock::time_point end = steady_clock::now() + seconds(20);
  while (waitpid(child, &status, WNOHANG) == 0 && steady_clock::now() < end) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_EQ(status, 0);
  std::this_thread::sleep_for(milliseconds(600));
  sum_once(*worker);
}

}  // namespace
}  // namespace peel::testing
