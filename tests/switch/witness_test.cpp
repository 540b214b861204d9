// Connections as witnesses of a worker's life: what the table of jobs makes of their outcomes, and what they are
// between real sockets.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <optional>
#include <thread>

#include "peel/error.h"
#include "switch/net/connections.h"
#include "switch/wire_packets.h"

namespace peel::aggregator {
namespace {

using detail::Contact;
using testing::Applicant;
using testing::endpoint;

constexpr std::uint16_t kLifePort = 40000;  // of worker 0, and of those behind it

struct WitnessOfLife : ::testing::Test {
  // Both are in, and have a port of life.
  WitnessOfLife() {
    applicant.join(0, 2);
    job = applicant.join(1, 2);
    for (unsigned worker = 0; worker < 2; ++worker) keep_alive(worker);
  }
  void keep_alive(unsigned worker, std::uint16_t port = 0) {
    peel_control sign = job;
    sign.worker = static_cast<std::uint8_t>(worker);
    sign.life_port = port != 0 ? port : static_cast<std::uint16_t>(kLifePort + worker);
    applicant.keep_alive(sign, endpoint(worker), ++sequence);
  }
  // Worker 0 is heard, and connections to worker 1 have this outcome; how many there were.
  unsigned pass(Time time, Contact contact, std::optional<unsigned> also_heard = std::nullopt) {
    unsigned count = 0;
    for (const Time end = applicant.now + time; applicant.now < end;) {
      applicant.now += Time{50};
      keep_alive(0);
      if (also_heard) keep_alive(*also_heard);
      aggregator.jobs().tick(applicant.now);
      for (const Approach& one : aggregator.jobs().take_approaches(SIZE_MAX)) {
        if (one.worker == 1) ++count;
        aggregator.jobs().end_approach(one, one.worker == 1 ? contact : Contact::taken);
      }
    }
    return count;
  }
  [[nodiscard]] std::uint64_t gone() { return aggregator.jobs().find(job.job)->gone; }

  Aggregator aggregator{Limits{}, {Secrets(testing::kSecret), {}}, 1};
  Applicant applicant{aggregator};
  peel_control job{};
  std::uint64_t sequence = 0;
};

TEST_F(WitnessOfLife, IsAskedAtTheAddressOfTheWorkerAndAtThePortThatItTold) {
  aggregator.jobs().tick(applicant.now);
  const std::vector<Approach> all = aggregator.jobs().take_approaches(SIZE_MAX);
  ASSERT_EQ(all.size(), 2u);
  for (unsigned worker = 0; worker < 2; ++worker) {
    EXPECT_EQ(all[worker].to, endpoint(worker, static_cast<std::uint16_t>(kLifePort + worker)));
  }
}

TEST_F(WitnessOfLife, IsTestedOnceAndThenLeftAloneWhileTheWorkerIsHeard) {
  EXPECT_EQ(pass(Time{20000}, Contact::taken, 1), 1u);
  EXPECT_EQ(gone(), 0u);
}

TEST_F(WitnessOfLife, IsGivenUpAfterSomeTestsThatTellNothing) {
  EXPECT_EQ(pass(Time{20000}, Contact::unknown, 1), 3u);
  EXPECT_EQ(gone(), 0u);
}

TEST_F(WitnessOfLife, ProvesADeathByARefusalAfterAConnectionThatWasTaken) {
  pass(Time{1000}, Contact::taken, 1);
  EXPECT_EQ(pass(Time{700}, Contact::refused), 0u) << "nobody is asked who was heard a moment ago";
  EXPECT_EQ(gone(), 0u);
  pass(Time{200}, Contact::refused);
  EXPECT_EQ(gone(), 2u);
}

TEST_F(WitnessOfLife, ProvesNothingWhereConnectionsWereAlwaysRefused) {
  pass(Time{1000}, Contact::refused, 1);
  pass(Time{9000}, Contact::refused);
  EXPECT_EQ(gone(), 0u);
  pass(Time{2000}, Contact::refused);
  EXPECT_EQ(gone(), 2u) << "but silence does";
}

TEST_F(WitnessOfLife, ProvesNothingForAProcessThatIsStopped) {
  pass(Time{1000}, Contact::taken, 1);
  const unsigned asked = pass(Time{5000}, Contact::taken);
  EXPECT_GE(asked, 5u);
  EXPECT_LE(asked, 10u);
  pass(Time{3000}, Contact::unknown);
  EXPECT_EQ(gone(), 0u);
  pass(Time{1000}, Contact::refused);
  EXPECT_EQ(gone(), 2u) << "and then was killed";
}

// Whoever sees the questions can forge ICMP that quotes them.
TEST_F(WitnessOfLife, OutweighsIcmpForAProcessThatIsStopped) {
  pass(Time{1000}, Contact::taken, 1);
  const auto quote = [&] {
    for (const Outgoing& one : aggregator.admission().notices()) aggregator.admission().take_refused(one.datagram);
  };
  for (int i = 0; i < 100; ++i) {
    pass(Time{50}, Contact::taken);
    quote();
  }
  EXPECT_EQ(gone(), 0u);
  for (int i = 0; i < 40; ++i) {
    pass(Time{50}, Contact::unknown);
    quote();
  }
  EXPECT_EQ(gone(), 2u) << "and counts where connections tell nothing any more";
}

TEST_F(WitnessOfLife, IsTestedAnewAtAnotherPort) {
  pass(Time{1000}, Contact::taken, 1);
  keep_alive(1, kLifePort + 7);
  pass(Time{5000}, Contact::refused);
  EXPECT_EQ(gone(), 0u);
}

TEST_F(WitnessOfLife, IsQueuedOnceForAWorkerThatAlwaysTellsAnotherPort) {
  for (unsigned i = 0; i < 100; ++i) {
    applicant.now += Time{50};
    keep_alive(0);
    keep_alive(1, static_cast<std::uint16_t>(kLifePort + 10 + i));
    aggregator.jobs().tick(applicant.now);
  }
  const std::vector<Approach> all = aggregator.jobs().take_approaches(SIZE_MAX);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].to.port + all[1].to.port, kLifePort + kLifePort + 10 + 99);
}

TEST_F(WitnessOfLife, DoesNotOutweighASignOfLife) {
  pass(Time{1000}, Contact::taken, 1);
  std::vector<Approach> late;
  while (late.empty()) {
    applicant.now += Time{50};
    keep_alive(0);
    aggregator.jobs().tick(applicant.now);
    late = aggregator.jobs().take_approaches(SIZE_MAX);
  }
  keep_alive(1);
  aggregator.jobs().end_approach(late[0], Contact::refused);
  aggregator.jobs().tick(applicant.now);
  EXPECT_EQ(gone(), 0u);
}

TEST_F(WitnessOfLife, IsAskedFirstAboutTheSilent) {
  pass(Time{1000}, Contact::taken, 1);
  peel_control other = applicant.join(0, 1, "other", 7);
  other.life_port = kLifePort + 7;
  applicant.keep_alive(other, endpoint(0), 1);
  aggregator.jobs().tick(applicant.now);  // its test waits
  applicant.now += Time{800};
  keep_alive(0);
  applicant.keep_alive(other, endpoint(0), 2);
  aggregator.jobs().tick(applicant.now);
  const std::vector<Approach> first = aggregator.jobs().take_approaches(1);
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].to, endpoint(1, kLifePort + 1));
  const std::vector<Approach> rest = aggregator.jobs().take_approaches(SIZE_MAX);
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_EQ(rest[0].job, other.job);
}

}  // namespace
}  // namespace peel::aggregator

namespace peel::detail {
namespace {

Contact contact(const Address& to, const LocalAddress& here = {}) {
  Connection connection(to, here);
  for (int i = 0; i < 1000; ++i) {
    if (const auto outcome = connection.outcome()) return *outcome;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ADD_FAILURE() << "it has no outcome";
  return Contact::unknown;
}

TEST(LifePort, IsThereAsLongAsItIsOpen) {
  for (const char* host : {"127.0.0.1:0", "[::1]:0"}) {
    const Address local = resolve(host);
    Address at = local;
    {
      std::optional<LifePort> port;
      try {
        port.emplace(local);
      } catch (const Error&) {  // this machine has no IPv6
        continue;
      }
      at = local.with_port(port->number());
      EXPECT_THROW(LifePort{at}, Error) << "it is taken";
      EXPECT_EQ(contact(at), Contact::taken);
      EXPECT_EQ(contact(at, local.bytes()), Contact::taken);
      port->send_away();
      EXPECT_EQ(contact(at), Contact::taken);
    }
    EXPECT_EQ(contact(at), Contact::refused);
    EXPECT_EQ(LifePort(at).number(), at.port()) << "it may be had again at once";
  }
}

// A process that is stopped sends nobody away. When the kernel has no room for more, it is silent.
TEST(LifePort, RefusesNobodyWhenThereIsNoRoom) {
  LifePort port(resolve("127.0.0.1:0"));
  const Address at = resolve("127.0.0.1:0").with_port(port.number());
  Contact last = Contact::taken;
  for (int i = 0; i < 5000 && last == Contact::taken; ++i) last = contact(at);
  EXPECT_EQ(last, Contact::unknown);
  for (int i = 0; i < 20; ++i) port.send_away();
  EXPECT_EQ(contact(at), Contact::taken);
}

TEST(LifePort, IsTakenForAStoppedProcessAndRefusedForADeadOne) {
  std::array<int, 2> pipe_ends{};
  ASSERT_EQ(pipe(pipe_ends.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    const LifePort port(resolve("127.0.0.1:0"));
    const std::uint16_t number = port.number();
    if (write(pipe_ends[1], &number, sizeof number) != sizeof number) _exit(1);
    while (true) pause();
  }
  std::uint16_t number = 0;
  ASSERT_EQ(read(pipe_ends[0], &number, sizeof number), static_cast<ssize_t>(sizeof number));
  const Address at = resolve("127.0.0.1:0").with_port(number);
  ASSERT_EQ(kill(child, SIGSTOP), 0);
  EXPECT_EQ(contact(at), Contact::taken);
  ASSERT_EQ(kill(child, SIGKILL), 0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(contact(at), Contact::refused);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

}  // namespace
}  // namespace peel::detail
