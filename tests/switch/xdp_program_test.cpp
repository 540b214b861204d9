// The eBPF program against the switch in user space: both get the same packets, right ones and wrong ones, in the same
// order, and must give the same answers and count the same. The program runs in the kernel, by BPF_PROG_TEST_RUN.
#include <bpf/bpf.h>
#include <gtest/gtest.h>

#include <atomic>
#include <optional>

#include "draw.h"
#include "peel/error.h"
#include "scale.h"
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

Limits limits() {
  Limits limits;
  limits.jobs = 4;
  limits.slots = 16;
  limits.words = PEEL_XDP_WORDS;
  return limits;
}

// The switch in the kernel, packet by packet.
class Kernel {
 public:
  Kernel() : program_(detail::resolve("10.0.0.201:7077"), limits()), aggregator_(program_, limits(), keys(), 1) {}

  static Keys keys() { return {testing::kSecret, {}}; }

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
    return aggregator_.on_control(from, datagram, now);
  }
  [[nodiscard]] Tally tally() const { return aggregator_.tally(); }
  [[nodiscard]] const XdpAggregator& aggregator() const { return aggregator_; }

 private:
  XdpProgram program_;
  XdpAggregator aggregator_;
};

// Skips, with the reason, where the kernel lets nobody load any XDP program. One that takes some must take ours.
void with_kernel(const std::function<void(Kernel&)>& body) {
  std::string why = testing::in_own_network([&] {
    std::optional<Kernel> kernel;
    try {
      kernel.emplace();
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
  explicit Pair(Kernel& kernel) : kernel_(kernel) {}

  Bytes on_control(const Endpoint& from, const Bytes& datagram, Time now) {
    const Bytes reply = core_.on_control(from, datagram, now);
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
    for (const auto& job : core_.jobs().jobs()) {
      if (!job) continue;
      EXPECT_EQ(kernel_.aggregator().tally_of(*job).received, core_.tally_of(*job).received);
      EXPECT_EQ(kernel_.aggregator().tally_of(*job).dropped, core_.tally_of(*job).dropped);
      EXPECT_EQ(kernel_.aggregator().busy_slots(*job), core_.busy_slots(*job));
    }
  }

 private:
  Kernel& kernel_;
  Aggregator core_{limits(), Kernel::keys(), 1};
};

// Workers that are mostly right: they send the round that a slot is in, or one beside it, over a network that loses,
// doubles, delays and damages.
class Chaos {
 public:
  Chaos(Kernel& kernel, std::uint64_t seed) : pair_(kernel), applicant_(pair_), random_(seed) { join(); }

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
    return to_bytes(header, words);
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
    for (unsigned worker = 0; worker < kWorkers; ++worker) {
      admitted_ = applicant_.join(worker, kWorkers, "job", incarnation_);
      EXPECT_EQ(admitted_.verb, PEEL_VERB_ADMITTED);
    }
    rounds_.assign(admitted_.slot_count, 0);
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
    applicant_.now += std::chrono::milliseconds(120);
    refusals_ = 0;
  }

  Pair pair_;
  Applicant applicant_;
  testing::SeededDraw random_;
  peel_control admitted_{};
  std::vector<std::uint32_t> rounds_;
  std::uint64_t incarnation_ = 1;
  int refusals_ = 0;
};

TEST(XdpProgram, AnswersAsTheSwitchInUserSpaceDoes) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    with_kernel([&](Kernel& kernel) {
      Chaos chaos(kernel, seed);
      const std::uint64_t steps = testing::scaled(5'000, 1'000);
      for (std::uint64_t i = 0; i < steps && !::testing::Test::HasFailure(); ++i) chaos.step();
      chaos.finish(steps / 50);
    });
  }
}

// What the kernel does not take though it has XDP must not look as if it had none: tests would be skipped for it.
TEST(XdpProgram, TellsWhatTheKernelDoesNotTake) {
  with_kernel([&](Kernel&) {
    Limits none = limits();
    none.slots = 0;
    try {
      const XdpProgram program(detail::resolve("10.0.0.201:7077"), none);
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

// A packet longer than a result could be, or with bytes behind its datagram.
TEST(XdpProgram, DropsWhatDoesNotFit) {
  with_kernel([&](Kernel& kernel) {
    const Applicant applicant{kernel};
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
    const Applicant applicant{kernel};
    EXPECT_EQ(applicant.join(0, 6).verb, PEEL_VERB_ADMITTED);
    const peel_control second = applicant.join(testing::kPorts, 6);
    EXPECT_EQ(second.verb, PEEL_VERB_REFUSED);
    EXPECT_EQ(second.reason, PEEL_REASON_NO_PORT);
    EXPECT_EQ(applicant.join(testing::kPorts, 6, "another").verb, PEEL_VERB_ADMITTED);
  });
}

// The job is refused, and others go on.
TEST(XdpProgram, SurvivesPortsThatVanish) {
  with_kernel([&](Kernel& kernel) {
    const Applicant applicant{kernel};
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
    const Applicant applicant{kernel};
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
