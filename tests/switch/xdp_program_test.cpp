// The eBPF program against the switch in user space: both get the same packets, right ones and wrong ones, in the same
// order, and must give the same answers and count the same. The program runs in the kernel, by BPF_PROG_TEST_RUN.
#include <bpf/bpf.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <optional>

#include "draw.h"
#include "peel/error.h"
#include "scale.h"
#include "switch/core/challenge.h"
#include "switch/xdp/aggregator.h"
#include "switch/xdp_network.h"

namespace peel::aggregator {
namespace {

using testing::Applicant;
using testing::Bytes;
using testing::data_header;
using testing::endpoint;
using testing::to_bytes;

const Endpoint kSwitch = endpoint(200, 7077);
constexpr unsigned kVanished = 50;  // a worker whose port goes away while it joins
constexpr std::uint32_t kNoPort = 1'000'000;

enum class Sign : bool { no, yes };

Limits limits(Sign sign = Sign::no) {
  Limits limits;
  limits.jobs = 4;
  limits.slots = 16;
  limits.words = PEEL_XDP_WORDS;
  limits.sign = sign == Sign::yes;
  return limits;
}

// The program reads the clock itself, so the daemon must be told the same.
Time clock_now() { return std::chrono::duration_cast<Time>(std::chrono::steady_clock::now().time_since_epoch()); }

template <typename Switch>
Applicant applicant_of(Switch& one) {
  Applicant applicant{one};
  applicant.now = clock_now();
  return applicant;
}

// The switch in the kernel, packet by packet.
class Kernel {
 public:
  explicit Kernel(Sign sign = Sign::no)
      : program_(detail::resolve("10.0.0.201:7077"), limits(sign), keys().boot, 0x9E3779B97F4A7C15),
        aggregator_(program_, limits(sign), keys(), 1) {}

  static Keys keys() { return {Secrets(testing::kSecret), {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8}}; }

  struct Answer {
    std::uint32_t action = 0;
    Bytes frame;
    [[nodiscard]] Bytes datagram() const { return {frame.begin() + testing::kFrameHead, frame.end()}; }
  };
  [[nodiscard]] Answer give(const Bytes& frame) const {
    Answer answer;
    answer.frame.resize(4096);
    bpf_test_run_opts options{};
    options.sz = sizeof options;
    options.data_in = frame.data();
    options.data_size_in = static_cast<std::uint32_t>(frame.size());
    options.data_out = answer.frame.data();
    options.data_size_out = static_cast<std::uint32_t>(answer.frame.size());
    options.repeat = 1;
    if (bpf_prog_test_run_opts(program_.ingress(), &options) != 0) throw std::runtime_error("the program did not run");
    answer.action = options.retval;
    answer.frame.resize(options.data_size_out);
    return answer;
  }
  [[nodiscard]] Answer give(const Endpoint& from, const Bytes& datagram) const {
    return give(testing::to_frame(from, kSwitch, datagram));
  }

  // The program sees a request before the daemon does, and remembers its port: here always the same one, so it is put
  // right.
  Bytes on_control(const Endpoint& from, const Bytes& datagram, Time now) {
    EXPECT_EQ(give(from, datagram).action, XDP_PASS);
    peel_control control;
    std::memcpy(&control, datagram.data(), sizeof control);
    peel_xdp_door door{};
    if (control.verb == PEEL_VERB_JOIN) {
      EXPECT_TRUE(program_.find_door(control.challenge, door));
      EXPECT_EQ(door.worker[5], from.address[15]);
      EXPECT_EQ(door.here[5], 0xAA);
      const unsigned worker = from.address[15] - 1U;
      door.ifindex = worker == kVanished ? kNoPort : testing::port_number(worker % testing::kPorts);
      program_.put_door(control.challenge, door);
    }
    return aggregator_.admission().take({from, {}, datagram}, now);
  }
  [[nodiscard]] Tally tally() const { return aggregator_.tally(); }
  [[nodiscard]] const XdpAggregator& aggregator() const { return aggregator_; }
  // What comes to it by no port of the switch is not seen by the program.
  [[nodiscard]] XdpAggregator& daemon() { return aggregator_; }
  [[nodiscard]] bool has_door(std::uint64_t challenge) const {
    peel_xdp_door door{};
    return program_.find_door(challenge, door);
  }

 private:
  XdpProgram program_;
  XdpAggregator aggregator_;
};

// Skips, with the reason, where the kernel lets nobody load any XDP program. One that takes some must take ours.
void with_kernel(const std::function<void(Kernel&)>& body, Sign sign = Sign::no) {
  std::string why = testing::in_own_network([&] {
    std::optional<Kernel> kernel;
    try {
      kernel.emplace(sign);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::unsupported) throw;
      GTEST_SKIP() << error.what();
    }
    body(*kernel);
  });
  if (!why.empty()) GTEST_SKIP() << why;
}

// Both switches, which must not differ.
class Pair {
 public:
  Pair(Kernel& kernel, Sign sign) : kernel_(kernel), core_(limits(sign), Kernel::keys(), 1) {}

  Bytes on_control(const Endpoint& from, const Bytes& datagram, Time now) {
    const Bytes reply = core_.admission().take({from, {}, datagram}, now);
    EXPECT_EQ(kernel_.on_control(from, datagram, now), reply);
    return reply;
  }

  Outcome send(const Endpoint& from, const Bytes& datagram, Time now) {
    const Outcome expected = core_.on_data(0, from, datagram, now);
    const std::uint64_t completed = kernel_.tally().completed;
    const Kernel::Answer answer = kernel_.give(from, datagram);
    if (expected.to == Outcome::To::nobody) {
      EXPECT_EQ(answer.action, XDP_DROP);
      return expected;
    }
    EXPECT_EQ(answer.action, XDP_REDIRECT);
    Bytes reply(sizeof expected.header + expected.words.size_bytes());
    std::memcpy(reply.data(), &expected.header, sizeof expected.header);
    if (!expected.words.empty()) {
      std::memcpy(reply.data() + sizeof expected.header, expected.words.data(), expected.words.size_bytes());
    }
    EXPECT_EQ(answer.datagram(), reply);
    EXPECT_TRUE(testing::is_whole_frame(answer.frame, kSwitch, from));
    EXPECT_EQ(kernel_.tally().completed - completed, expected.to == Outcome::To::everybody ? 1U : 0U);
    return expected;
  }

  // Of which at least so many were combined.
  void expect_same_counts(std::uint64_t least) const {
    const Tally core = core_.tally();
    EXPECT_GT(core.completed, least) << "hardly anything was combined";
    const Tally kernel = kernel_.tally();
    EXPECT_EQ(kernel.combined, core.combined);
    EXPECT_EQ(kernel.completed, core.completed);
    EXPECT_EQ(kernel.repeated, core.repeated);
    EXPECT_EQ(kernel.received, core.received);
    for (std::size_t i = 0; i < PEEL_DROPS; ++i) EXPECT_EQ(kernel.dropped[i], core.dropped[i]) << "drop " << i;
    for (const auto& job : std::as_const(core_).jobs().jobs()) {
      if (!job) continue;
      EXPECT_EQ(kernel_.aggregator().tally_of(*job).received, core_.tally_of(*job).received);
      EXPECT_EQ(kernel_.aggregator().tally_of(*job).dropped, core_.tally_of(*job).dropped);
      EXPECT_EQ(kernel_.aggregator().busy_slots(*job), core_.busy_slots(*job));
    }
  }

 private:
  Kernel& kernel_;
  Aggregator core_;
};

// Of a job's packets, as its workers have it; none where they are not signed.
std::optional<detail::PacketKey> key_of(const peel_control& admitted) {
  if ((admitted.flags & PEEL_FLAG_SIGNED) == 0) return std::nullopt;
  auto bytes = detail::mask_of(testing::kSecret, admitted);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] ^= admitted.key[i];
  return detail::packet_key(bytes);
}

void sign(Bytes& datagram, const detail::PacketKey& key) {
  peel_packet header;
  std::memcpy(&header, datagram.data(), sizeof header);
  header.check = detail::check_of(header, datagram.data() + sizeof header, &key);
  std::memcpy(datagram.data(), &header, sizeof header);
}

// Workers that are mostly right: they send the round that a slot is in, or one beside it, over a network that loses,
// doubles, delays and damages.
class Chaos {
 public:
  Chaos(Kernel& kernel, std::uint64_t seed, Sign sign)
      : pair_(kernel, sign), applicant_(applicant_of(pair_)), random_(seed) {
    join();
  }

  void step() {
    const auto worker = static_cast<unsigned>(random_.below(kWorkers));
    const auto slot = static_cast<std::uint32_t>(random_.below(admitted_.slot_count));
    std::uint32_t round = rounds_[slot];
    if (random_.one_in(4)) round += static_cast<std::uint32_t>(random_.between(-3, 3));
    Bytes datagram = packet(worker, slot, round);
    Endpoint from = endpoint(worker);
    if (random_.one_in(6)) spoil(datagram, from);
    if (random_.one_in(40)) datagram = packet(worker, slot + admitted_.slot_count, round);
    const Outcome outcome = pair_.send(from, datagram, applicant_.now);
    if (outcome.to == Outcome::To::everybody) ++rounds_[slot];
    if (outcome.header.kind == PEEL_KIND_REFUSAL && ++refusals_ == 200) pause();
    if (random_.one_in(2000)) leave_and_return();
  }
  void finish(std::uint64_t least) { pair_.expect_same_counts(least); }

 private:
  static constexpr unsigned kWorkers = 3;

  // Tag, operation, length and words are the same whenever a worker sends a round again.
  Bytes packet(unsigned worker, std::uint32_t slot, std::uint32_t round) {
    peel_packet header = data_header(admitted_, worker, slot, round);
    testing::SeededDraw same((std::uint64_t{slot} << 32) + round);
    header.tag = static_cast<std::uint32_t>(same.bits());
    header.operation = static_cast<std::uint8_t>(same.below(2));
    std::vector<std::uint32_t> words(same.one_in(8) ? 1 : same.between(1, admitted_.words));
    testing::SeededDraw own(same.bits() + worker);
    for (std::uint32_t& word : words) word = static_cast<std::uint32_t>(own.bits());
    if (random_.one_in(50)) ++header.tag;
    if (random_.one_in(50)) header.operation ^= 1;
    if (random_.one_in(50)) words.pop_back();
    if (words.empty()) words = {1};
    if (random_.one_in(60)) header.cookie ^= 1;
    if (random_.one_in(60)) header.job = static_cast<std::uint16_t>(random_.below(65536));
    if (random_.one_in(60)) header.worker = static_cast<std::uint8_t>(random_.below(256));
    Bytes datagram = to_bytes(header, words);
    if (key_ && !random_.one_in(60)) sign(datagram, *key_);
    return datagram;
  }

  void spoil(Bytes& datagram, Endpoint& from) {
    switch (random_.below(5)) {
      case 0:
        datagram[random_.below(datagram.size())] ^= static_cast<std::uint8_t>(1U << random_.below(8));
        break;
      case 1:
        datagram.resize(random_.below(datagram.size()));
        break;
      case 2:
        datagram.resize(datagram.size() + random_.between(1, 9));
        break;
      case 3:
        from = endpoint(static_cast<unsigned>(random_.below(5)));
        break;
      default:
        ++from.port;
    }
    // What looks like a control packet goes another way.
    if (datagram.size() > 3 && datagram[3] == PEEL_KIND_CONTROL) datagram[3] = 0;
  }

  void join() {
    applicant_.now = clock_now();
    for (unsigned worker = 0; worker < kWorkers; ++worker) {
      admitted_ = applicant_.join(worker, kWorkers, "job", incarnation_);
      EXPECT_EQ(admitted_.verb, PEEL_VERB_ADMITTED);
    }
    rounds_.assign(admitted_.slot_count, 0);
    key_ = key_of(admitted_);
  }

  void leave_and_return() {
    const auto worker = random_.below(kWorkers);
    peel_control farewell = admitted_;
    farewell.worker = static_cast<std::uint8_t>(worker);
    applicant_.leave(farewell, endpoint(static_cast<unsigned>(worker)));
    for (int i = 0; i < 20; ++i) {
      const auto slot = static_cast<std::uint32_t>(random_.below(rounds_.size()));
      pair_.send(endpoint(0), packet(0, slot, rounds_[slot]), applicant_.now);
    }
    ++incarnation_;
    join();
    pause();
  }

  // Both answer few of a flood, by the clock; this is about the rest.
  void pause() {
    std::this_thread::sleep_for(std::chrono::milliseconds(120));
    applicant_.now = clock_now();
    refusals_ = 0;
  }

  Pair pair_;
  Applicant applicant_;
  testing::SeededDraw random_;
  peel_control admitted_{};
  std::vector<std::uint32_t> rounds_;
  std::optional<detail::PacketKey> key_;
  std::uint64_t incarnation_ = 1;
  int refusals_ = 0;
};

void expect_same_answers(std::uint64_t seed, Sign sign) {
  with_kernel(
      [&](Kernel& kernel) {
        Chaos chaos(kernel, seed, sign);
        const std::uint64_t steps = testing::scaled(5'000, 1'000);
        for (std::uint64_t i = 0; i < steps && !::testing::Test::HasFailure(); ++i) chaos.step();
        chaos.finish(steps / 50);
      },
      sign);
}

TEST(XdpProgram, AnswersAsTheSwitchInUserSpaceDoes) {
  for (const std::uint64_t seed : {1, 2, 3}) expect_same_answers(seed, Sign::no);
}

TEST(XdpProgram, SignsAsTheSwitchInUserSpaceDoes) {
  for (const std::uint64_t seed : {4, 5}) expect_same_answers(seed, Sign::yes);
}

// What the kernel does not take though it has XDP must not look as if it had none: tests would be skipped for it.
TEST(XdpProgram, TellsWhatTheKernelDoesNotTake) {
  with_kernel([&](Kernel&) {
    Limits none = limits();
    none.slots = 0;
    try {
      const XdpProgram program(detail::resolve("10.0.0.201:7077"), none, {}, 1);
      ADD_FAILURE() << "the kernel makes maps of nothing";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::transport);
      EXPECT_NE(std::string(error.what()).find("'slots'"), std::string::npos) << error.what();
    }
  });
}

TEST(XdpProgram, LeavesOthersAlone) {
  with_kernel([&](Kernel& kernel) {
    const Bytes right = testing::to_frame(endpoint(0), kSwitch, to_bytes({}, {1, 2, 3}));
    EXPECT_EQ(kernel.give(right).action, XDP_DROP);
    const auto differs = [&](std::size_t at, std::uint8_t value) {
      Bytes other = right;
      other[at] = value;
      EXPECT_EQ(kernel.give(other).action, XDP_PASS) << at;
      EXPECT_EQ(kernel.give(other).frame, other) << at;
    };
    differs(13, 6);     // ARP
    differs(14, 0x46);  // options
    differs(20, 0x20);  // a fragment
    differs(21, 0x01);
    differs(23, 6);   // TCP
    differs(33, 99);  // another host
    differs(37, 1);   // another port
    for (std::size_t length = 14; length < testing::kFrameHead; ++length) {
      EXPECT_EQ(kernel.give(Bytes(right.begin(), right.begin() + length)).action, XDP_PASS) << length;
    }
    EXPECT_EQ(kernel.tally().received, 1u);
  });
}

// Each core has a budget of its own; this thread ends with the test.
void stay_on_one_core() {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<std::size_t>(sched_getcpu()), &one);
  EXPECT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
}

// Budgets are by core and by the clock: one core sends, and the clock is read. `most` of a window.
template <typename Send>
std::uint64_t most_in_windows(std::uint64_t most, const Send& send) {
  stay_on_one_core();
  const auto began = std::chrono::steady_clock::now();
  send();
  const auto passed = std::chrono::steady_clock::now() - began;
  return most * static_cast<std::uint64_t>(2 + passed / std::chrono::milliseconds(PEEL_XDP_WINDOW_MS));
}

TEST(XdpProgram, LooksAtAddressesBeforeChecks) {
  with_kernel([&](Kernel& kernel) {
    const Applicant applicant = applicant_of(kernel);
    const peel_control admitted = applicant.join(0, 1);
    Bytes datagram = to_bytes(data_header(admitted, 0, 0, 0), {1, 2, 3});
    datagram.back() ^= 1;
    EXPECT_EQ(kernel.give(endpoint(1), datagram).action, XDP_DROP);
    EXPECT_EQ(kernel.tally().dropped[PEEL_DROP_FORGED], 1u);
    EXPECT_EQ(kernel.tally().dropped[PEEL_DROP_CORRUPT], 0u);
    EXPECT_EQ(kernel.give(endpoint(0), datagram).action, XDP_DROP);
    EXPECT_EQ(kernel.tally().dropped[PEEL_DROP_CORRUPT], 1u);
  });
}

TEST(XdpProgram, ChecksFewPacketsOfStrangers) {
  with_kernel([&](Kernel& kernel) {
    constexpr std::uint64_t kSent = 20'000;
    const Applicant applicant = applicant_of(kernel);
    peel_packet header = data_header(applicant.join(0, 1), 0, 0, 0);
    ++header.cookie;
    Bytes damaged = to_bytes(header, {1, 2, 3});
    damaged.back() ^= 1;
    const std::uint64_t most = most_in_windows(PEEL_XDP_REFUSALS, [&] {
      for (std::uint64_t i = 0; i < kSent; ++i) EXPECT_EQ(kernel.give(endpoint(0), damaged).action, XDP_DROP);
    });
    const Tally tally = kernel.tally();
    EXPECT_GE(tally.dropped[PEEL_DROP_CORRUPT], std::uint64_t{PEEL_XDP_REFUSALS});
    EXPECT_LE(tally.dropped[PEEL_DROP_CORRUPT], most);
    EXPECT_EQ(tally.dropped[PEEL_DROP_UNKNOWN_JOB], kSent - tally.dropped[PEEL_DROP_CORRUPT]);
  });
}

// A flood of data of jobs that are not there uses up what strangers get, and not what workers get.
TEST(XdpProgram, RefusesMembersWhileStrangersFlood) {
  with_kernel([&](Kernel& kernel) {
    stay_on_one_core();
    const Applicant applicant = applicant_of(kernel);
    const peel_control admitted = applicant.join(0, 2);
    applicant.join(1, 2);
    EXPECT_EQ(kernel.give(endpoint(0), to_bytes(data_header(admitted, 0, 0, 0), {1, 2, 3})).action, XDP_DROP);
    const Bytes mismatch = to_bytes(data_header(admitted, 1, 0, 0), {1, 2});
    peel_packet unknown = data_header(admitted, 0, 0, 0);
    ++unknown.cookie;
    const Bytes flood = to_bytes(unknown, {1, 2, 3});
    for (int i = 0; i < 10; ++i) {
      int sent = 0;
      while (sent < 2'000 && kernel.give(endpoint(5), flood).action == XDP_REDIRECT) ++sent;
      EXPECT_EQ(kernel.give(endpoint(1), mismatch).action, XDP_REDIRECT);
    }
  });
}

// Workers that call different things get few answers too.
TEST(XdpProgram, RefusesFewPacketsOfMembers) {
  with_kernel([&](Kernel& kernel) {
    constexpr std::uint64_t kSent = 20'000;
    const Applicant applicant = applicant_of(kernel);
    const peel_control admitted = applicant.join(0, 2);
    applicant.join(1, 2);
    EXPECT_EQ(kernel.give(endpoint(0), to_bytes(data_header(admitted, 0, 0, 0), {1, 2, 3})).action, XDP_DROP);
    const Bytes mismatch = to_bytes(data_header(admitted, 1, 0, 0), {1, 2});
    std::uint64_t refused = 0;
    const std::uint64_t most = most_in_windows(PEEL_XDP_REFUSALS, [&] {
      for (std::uint64_t i = 0; i < kSent; ++i) {
        refused += kernel.give(endpoint(1), mismatch).action == XDP_REDIRECT ? 1 : 0;
      }
    });
    EXPECT_GE(refused, std::uint64_t{PEEL_XDP_REFUSALS});
    EXPECT_LE(refused, most);
    EXPECT_EQ(kernel.tally().dropped[PEEL_DROP_MISMATCH], kSent);
  });
}

TEST(XdpProgram, PassesRequestsAloneToTheDaemon) {
  with_kernel([&](Kernel& kernel) {
    const auto action = [&](unsigned verb, std::size_t bytes) {
      peel_control control = detail::make_control(PEEL_VERB_HELLO);
      control.verb = static_cast<std::uint8_t>(verb);
      Bytes datagram = detail::pad(control);
      datagram.resize(bytes);
      return kernel.give(endpoint(0), datagram).action;
    };
    for (const unsigned verb : {PEEL_VERB_HELLO, PEEL_VERB_JOIN, PEEL_VERB_LEAVE, PEEL_VERB_KEEPALIVE}) {
      EXPECT_EQ(action(verb, 168), XDP_PASS) << verb;
      for (const std::size_t bytes : {40, 167, 169, 1400, 3000}) EXPECT_EQ(action(verb, bytes), XDP_DROP) << bytes;
    }
    for (const std::size_t bytes : {520, 1232, 1400}) EXPECT_EQ(action(PEEL_VERB_QUERY, bytes), XDP_PASS) << bytes;
    for (const std::size_t bytes : {168, 519, 1401}) EXPECT_EQ(action(PEEL_VERB_QUERY, bytes), XDP_DROP) << bytes;
    for (const std::size_t bytes : {169, 548, 1472, 3372}) EXPECT_EQ(action(PEEL_VERB_PROBE, bytes), XDP_PASS) << bytes;
    EXPECT_EQ(action(PEEL_VERB_PROBE, 168), XDP_DROP);
    for (unsigned verb = 0; verb < 256; ++verb) {
      const bool known =
          verb == PEEL_VERB_HELLO || verb == PEEL_VERB_JOIN || verb == PEEL_VERB_LEAVE || verb == PEEL_VERB_KEEPALIVE;
      EXPECT_EQ(action(verb, 168), known ? XDP_PASS : XDP_DROP) << verb;
    }
    peel_control old = detail::make_control(PEEL_VERB_HELLO);
    old.version = PEEL_WIRE_VERSION - 1;
    EXPECT_EQ(kernel.give(endpoint(0), detail::pad(old)).action, XDP_DROP);
    EXPECT_EQ(kernel.tally().received, kernel.tally().dropped[PEEL_DROP_MALFORMED]) << "the daemon counts the others";
  });
}

// Others, and those who are in, are heard meanwhile.
TEST(XdpProgram, PassesFewRequestsOfOneAddress) {
  with_kernel([&](Kernel& kernel) {
    constexpr std::uint64_t kSent = 20'000;
    const Applicant applicant = applicant_of(kernel);
    peel_control alive = applicant.join(0, 1);
    alive.verb = PEEL_VERB_KEEPALIVE;
    const Bytes hello = detail::pad(detail::make_control(PEEL_VERB_HELLO));
    const Bytes sign_of_life = to_bytes(alive);
    std::uint64_t passed = 0;
    const std::uint64_t most = most_in_windows(PEEL_XDP_REQUESTS_OF_SOURCE, [&] {
      for (std::uint64_t i = 0; i < kSent; ++i) {
        passed += kernel.give(endpoint(0), hello).action == XDP_PASS ? 1 : 0;
        if (i % 1000 != 0) continue;
        EXPECT_EQ(kernel.give(endpoint(0), sign_of_life).action, XDP_PASS) << i;
        EXPECT_EQ(kernel.give(endpoint(1), hello).action, XDP_PASS) << i;
      }
    });
    EXPECT_GE(passed, std::uint64_t{PEEL_XDP_REQUESTS_OF_SOURCE - 10});
    EXPECT_LE(passed, most);
    EXPECT_EQ(kernel.tally().dropped[PEEL_DROP_BUDGET], kSent - passed);
  });
}

TEST(XdpProgram, PassesNoFloodThatHoldsTheCookieOfAJob) {
  with_kernel([&](Kernel& kernel) {
    constexpr std::uint64_t kSent = 20'000;
    peel_control alive = applicant_of(kernel).join(0, 1);
    alive.verb = PEEL_VERB_KEEPALIVE;
    const Bytes sign_of_life = to_bytes(alive);
    std::uint64_t passed = 0;
    const std::uint64_t most = most_in_windows(PEEL_XDP_REQUESTS_OF_MEMBERS, [&] {
      for (std::uint64_t i = 0; i < kSent; ++i) {
        passed += kernel.give(endpoint(0), sign_of_life).action == XDP_PASS ? 1 : 0;
      }
    });
    EXPECT_GE(passed, std::uint64_t{PEEL_XDP_REQUESTS_OF_MEMBERS - 10});
    EXPECT_LE(passed, most);
  });
}

// Somebody who forges the address of a worker uses up what that address may ask, but for requests that only the worker
// can make.
TEST(XdpProgram, PassesProvenRequestsWhileTheirAddressFloods) {
  with_kernel([&](Kernel& kernel) {
    const Bytes hello = detail::pad(detail::make_control(PEEL_VERB_HELLO));
    Applicant daemon = applicant_of(kernel.daemon());
    std::uint64_t dropped = 0;
    for (unsigned i = 0; i < 5000; ++i) {
      dropped += kernel.give(endpoint(0), hello).action == XDP_DROP ? 1 : 0;
      if (i % 100 != 99) continue;
      const peel_control proven = daemon.prove(Applicant::request(0, 1, "job", i), endpoint(0), PEEL_VERB_JOIN);
      EXPECT_EQ(kernel.give(endpoint(0), to_bytes(proven)).action, XDP_PASS) << i;
      EXPECT_TRUE(kernel.has_door(proven.challenge)) << i;
    }
    EXPECT_GT(dropped, 0u);
  });
}

// As the kernel counts it.
TEST(XdpProgram, TellsItsMemory) {
  with_kernel([&](Kernel&) {
    Limits many = limits();
    many.slots = 600;
    many.jobs = 16;
    const auto held = [] {
      std::uint64_t total = 0;
      for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fdinfo")) {
        std::ifstream file(entry.path());
        std::uint64_t bytes = 0;
        bool is_map = false;
        for (std::string name, value; file >> name >> value;) {
          is_map = is_map || name == "map_type:";
          if (name == "memlock:") bytes = std::stoull(value);
        }
        if (is_map) total += bytes;
      }
      return total;
    };
    const std::uint64_t before = held();
    const XdpProgram program(detail::resolve("10.0.0.201:7077"), many, {}, 1);
    const auto taken = static_cast<double>(held() - before);
    EXPECT_NEAR(static_cast<double>(XdpProgram::memory(many)), taken, 0.15 * taken);
  });
}

// What the kernel does not take is no reason to end the switch: the job is refused.
TEST(XdpProgram, SaysWhenSlotsCannotBeWritten) {
  with_kernel([&](Kernel&) {
    XdpProgram program(detail::resolve("10.0.0.201:7077"), limits(), {}, 1);
    EXPECT_TRUE(program.write_slots(0, limits().slots, {}));
    EXPECT_FALSE(program.write_slots(limits().slots, 1, {}));
    EXPECT_TRUE(program.clear_job_tallies(0));
    EXPECT_FALSE(program.clear_job_tallies(limits().jobs));
  });
}

// A packet longer than a result could be, or with bytes behind its datagram.
TEST(XdpProgram, DropsWhatDoesNotFit) {
  with_kernel([&](Kernel& kernel) {
    const Applicant applicant = applicant_of(kernel);
    const peel_control admitted = applicant.join(0, 1);
    const Bytes datagram = to_bytes(data_header(admitted, 0, 0, 0), {1, 2, 3});
    Bytes frame = testing::to_frame(endpoint(0), kSwitch, datagram);
    frame.resize(frame.size() + 4);
    EXPECT_EQ(kernel.give(frame).action, XDP_DROP);
    EXPECT_EQ(
        kernel.give(endpoint(0), to_bytes(data_header(admitted, 0, 0, 0), std::vector<std::uint32_t>(834))).action,
        XDP_DROP);
    EXPECT_EQ(kernel.tally().dropped[PEEL_DROP_MALFORMED], 2u);
    EXPECT_EQ(kernel.give(endpoint(0), datagram).action, XDP_REDIRECT);
  });
}

// One result for each port: a second worker of a job there is told to do without the switch.
TEST(XdpProgram, HasOneWorkerOfAJobAtAPort) {
  with_kernel([&](Kernel& kernel) {
    const Applicant applicant = applicant_of(kernel);
    EXPECT_EQ(applicant.join(0, 6).verb, PEEL_VERB_ADMITTED);
    const peel_control second = applicant.join(testing::kPorts, 6);
    EXPECT_EQ(second.verb, PEEL_VERB_REFUSED);
    EXPECT_EQ(second.reason, PEEL_REASON_NO_PORT);
    EXPECT_EQ(applicant.join(testing::kPorts, 6, "another").verb, PEEL_VERB_ADMITTED);
  });
}

// The door of a request may be forgotten: the next one brings it again, and the job is not lost.
TEST(XdpProgram, WaitsForADoorThatIsUnknown) {
  with_kernel([&](Kernel& kernel) {
    const Applicant applicant = applicant_of(kernel);
    const Applicant elsewhere = applicant_of(kernel.daemon());
    EXPECT_EQ(elsewhere.join(0, 2).verb, 0) << "the first worker gets no answer";
    EXPECT_EQ(applicant.join(0, 2).verb, PEEL_VERB_ADMITTED);
    EXPECT_EQ(elsewhere.join(1, 2).verb, 0);
    EXPECT_EQ(applicant.join(0, 2).joined, 1u);
    EXPECT_EQ(applicant.join(1, 2).joined, 3u);
  });
}

// As the daemon would say: of requests with a challenge that it sent there, and not long ago. All get to the daemon,
// which says what is wrong with them.
TEST(XdpProgram, RemembersDoorsOfProvenRequestsAlone) {
  with_kernel([&](Kernel& kernel) {
    const auto joins = [&](const peel_control& request, const Endpoint& from) {
      EXPECT_EQ(kernel.give(from, to_bytes(request)).action, XDP_PASS);
      return kernel.has_door(request.challenge);
    };
    Applicant daemon = applicant_of(kernel.daemon());
    const auto prove = [&](Time ago, std::uint64_t incarnation, const Endpoint& from) {
      daemon.now = clock_now() - ago;
      return daemon.prove(Applicant::request(0, 1, "job", incarnation), from, PEEL_VERB_JOIN);
    };
    EXPECT_TRUE(joins(prove({}, 1, endpoint(0)), endpoint(0)));
    EXPECT_FALSE(joins(prove({}, 2, endpoint(0)), endpoint(1))) << "another address";
    EXPECT_FALSE(joins(prove({}, 3, endpoint(0)), endpoint(0, 5001))) << "another port";
    peel_control request = prove({}, 4, endpoint(0));
    ++request.incarnation;
    EXPECT_FALSE(joins(request, endpoint(0))) << "another worker";
    request = prove({}, 6, endpoint(0));
    ++request.challenge;
    EXPECT_FALSE(joins(request, endpoint(0))) << "a guess";

    constexpr Time kWindow{PEEL_CHALLENGE_MS};
    EXPECT_FALSE(joins(prove(2 * kWindow, 7, endpoint(0)), endpoint(0))) << "an old one";
    bool took_last = false;
    Time began{};
    do {  // until no window ended meanwhile
      began = clock_now() / kWindow * kWindow;
      took_last = joins(prove(kWindow, 8, endpoint(0)), endpoint(0));
    } while (clock_now() - began >= kWindow);
    EXPECT_TRUE(took_last) << "one of the last window";
  });
}

// A flood of requests with made-up challenges pushes out no door.
TEST(XdpProgram, KeepsDoorsWhileStrangersFlood) {
  with_kernel([&](Kernel& kernel) {
    Applicant daemon = applicant_of(kernel.daemon());
    const peel_control proven = daemon.prove(Applicant::request(0, 1), endpoint(0), PEEL_VERB_JOIN);
    EXPECT_EQ(kernel.give(endpoint(0), to_bytes(proven)).action, XDP_PASS);
    peel_control guess = proven;
    std::uint64_t passed = 0;
    for (unsigned i = 0; passed < 3 * PEEL_XDP_DOORS && i < 1'000'000; ++i) {  // as many as the budget lets through
      ++guess.challenge;
      Endpoint from = endpoint(i % 200);
      from.address[14] = static_cast<std::uint8_t>(i / 200 % 256);
      passed += kernel.give(from, detail::pad(guess)).action == XDP_PASS ? 1 : 0;
    }
    EXPECT_EQ(passed, 3 * PEEL_XDP_DOORS);
    EXPECT_TRUE(kernel.has_door(proven.challenge));
    EXPECT_FALSE(kernel.has_door(guess.challenge));
  });
}

// Whose requests come by another way each time is told so, and so are the others of its job.
TEST(XdpProgram, HasNoPortForWhoComesByNone) {
  with_kernel([&](Kernel& kernel) {
    const Applicant applicant = applicant_of(kernel);
    const Applicant elsewhere = applicant_of(kernel.daemon());
    EXPECT_EQ(applicant.join(0, 2).verb, PEEL_VERB_ADMITTED);
    unsigned asked = 1;
    while (asked < 100 && elsewhere.join(1, 2).verb == 0) ++asked;
    EXPECT_EQ(asked, 8u);
    EXPECT_EQ(elsewhere.join(1, 2).reason, PEEL_REASON_NO_PORT);
    EXPECT_EQ(applicant.join(0, 2).reason, PEEL_REASON_NO_PORT);
  });
}

// The job is refused, and others go on.
TEST(XdpProgram, SurvivesPortsThatVanish) {
  with_kernel([&](Kernel& kernel) {
    const Applicant applicant = applicant_of(kernel);
    const peel_control other = applicant.join(1, 2, "other");
    EXPECT_EQ(applicant.join(kVanished, kVanished + 1).reason, PEEL_REASON_NO_PORT) << "the first worker";
    EXPECT_EQ(applicant.join(0, kVanished + 1).verb, PEEL_VERB_ADMITTED);
    EXPECT_EQ(applicant.join(kVanished, kVanished + 1).reason, PEEL_REASON_NO_PORT);
    EXPECT_EQ(applicant.join(0, kVanished + 1).reason, PEEL_REASON_NO_PORT) << "who is in learns of it";
    EXPECT_EQ(applicant.join(0, 2, "other").joined, 3u);
    EXPECT_EQ(kernel.give(endpoint(0), to_bytes(data_header(other, 0, 0, 0), {1})).action, XDP_DROP);
    EXPECT_EQ(kernel.give(endpoint(1), to_bytes(data_header(other, 1, 0, 0), {2})).action, XDP_REDIRECT);
    EXPECT_EQ(kernel.tally().completed, 1u);
  });
}

// Two cores at the same slots: each plays a worker, and asks again until it has the result.
TEST(XdpProgram, KeepsSumsExactOnSeveralCores) {
  with_kernel([&](Kernel& kernel) {
    constexpr std::size_t kLength = 300;
    constexpr std::size_t kResult = testing::kFrameHead + sizeof(peel_packet) + 4 * kLength;
    const std::uint32_t rounds = testing::small_scale() ? 50 : 300;
    const Applicant applicant = applicant_of(kernel);
    const peel_control admitted = applicant.join(0, 2);
    applicant.join(1, 2);
    std::atomic<std::uint64_t> wrong = 0;
    std::atomic<bool> failed = false;  // of either: the other would wait for a result that never comes
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(2);
    const auto ask = [&](unsigned worker, const Bytes& datagram) {
      while (!failed && std::chrono::steady_clock::now() < end) {
        Kernel::Answer answer = kernel.give(endpoint(worker), datagram);
        if (answer.action == XDP_REDIRECT) return answer;
      }
      throw std::runtime_error("worker " + std::to_string(worker) + " got no result");
    };
    const auto work = [&](unsigned worker) {
      for (std::uint32_t round = 0; round < rounds; ++round) {
        for (std::uint32_t slot = 0; slot < admitted.slot_count; ++slot) {
          const Bytes datagram = to_bytes(data_header(admitted, worker, slot, round),
                                          std::vector<std::uint32_t>(kLength, (worker + 1) * (round + slot)));
          const Kernel::Answer answer = ask(worker, datagram);
          const std::vector<std::uint32_t> expected(kLength, 3 * (round + slot));
          const bool right = answer.frame.size() == kResult && std::memcmp(answer.frame.data() + kResult - 4 * kLength,
                                                                           expected.data(), 4 * kLength) == 0;
          wrong += right ? 0 : 1;
        }
      }
    };
    const auto try_to_work = [&](unsigned worker) -> std::exception_ptr {
      try {
        work(worker);
        return {};
      } catch (...) {
        failed = true;
        return std::current_exception();
      }
    };
    std::exception_ptr thrown;
    std::thread other([&] { thrown = try_to_work(0); });
    const std::exception_ptr own = try_to_work(1);
    testing::join_and_rethrow(other, thrown);
    if (own) std::rethrow_exception(own);
    EXPECT_EQ(wrong, 0u);
    EXPECT_EQ(kernel.tally().completed, std::uint64_t{rounds} * admitted.slot_count);
    EXPECT_EQ(kernel.tally().combined, 2 * std::uint64_t{rounds} * admitted.slot_count);
  });
}

}  // namespace
}  // namespace peel::aggregator
