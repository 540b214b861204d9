// Whatever datagrams reach a switch, in whatever order: no crash and no wild memory, no worker's words are added twice
// or to another round, every result is the sum or OR of exactly its workers' words, and a result that is read again is
// the same.
//
// The bytes are a list of steps. A step is a packet of a worker with a few fields drawn, signed and checked like a real
// one, or raw bytes, with or without a right magic and check.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>

#include "byte_draw.h"
#include "switch/wire_packets.h"

namespace {

using peel::aggregator::Aggregator;
using peel::aggregator::Outcome;
using peel::testing::Applicant;
using peel::testing::ByteDraw;
using peel::testing::Bytes;

void demand(bool condition) {
  if (!condition) __builtin_trap();
}

constexpr unsigned kWorkers = 3;

class Watch {
 public:
  explicit Watch(ByteDraw& draw) : draw_(draw) {}

  void step() {
    applicant_.now += std::chrono::milliseconds(draw_.below(4) == 0 ? draw_.below(1 << 20) : 0);
    switch (draw_.below(8)) {
      case 0:
        return join();
      case 1:
        return raw();
      case 2:
        return applicant_.leave(jobs_[draw_.below(2)], from(draw_.below(kWorkers)));
      case 3:
        return live();
      default:
        return data();
    }
  }

 private:
  using Key = std::tuple<std::uint64_t, std::uint32_t, std::uint32_t>;  // cookie, slot, round
  struct Round {
    std::uint64_t seen = 0;
    std::vector<std::uint32_t> words;
  };

  static peel::aggregator::Endpoint from(std::uint64_t worker) {
    return peel::testing::endpoint(static_cast<unsigned>(worker));
  }
  static peel::aggregator::Limits limits() {
    peel::aggregator::Limits small;
    small.jobs = 3;
    small.slots = 6;
    small.job_slots = 3;
    small.words = 8;
    return small;
  }

  void join() {
    const std::uint64_t which = draw_.below(2);
    const auto worker = static_cast<unsigned>(draw_.below(kWorkers + 1));
    peel_control request = Applicant::request(worker, kWorkers, which == 0 ? "a" : "b", draw_.below(4));
    request.slot_count = static_cast<std::uint16_t>(draw_.below(4));
    request.words = static_cast<std::uint16_t>(1 + draw_.below(12));
    const peel_control reply = applicant_.join(request, from(worker));
    if (reply.verb != PEEL_VERB_ADMITTED) return;
    demand(reply.slot_count != 0 && reply.slot_count <= 3 && reply.words <= 8 && reply.job < 3);
    demand(reply.joined != 0 && reply.joined < 1U << kWorkers);
    jobs_[which] = reply;
  }

  void live() {
    const auto worker = static_cast<unsigned>(draw_.below(kWorkers));
    peel_control member = jobs_[draw_.below(2)];
    member.worker = static_cast<std::uint8_t>(worker);
    const peel_control state = applicant_.keep_alive(member, from(worker), draw_.below(1 << 10));
    demand(state.verb == 0 || state.verb == PEEL_VERB_STATE || state.verb == PEEL_VERB_REFUSED);
    aggregator_.jobs().tick(applicant_.now);
    for (const auto& notice : aggregator_.admission().notices()) {
      demand(notice.datagram.size() == sizeof(peel_control));
      if (draw_.below(2) != 0) aggregator_.admission().take_refused(notice.datagram);
    }
  }

  void raw() {
    Bytes bytes(draw_.below(2) != 0 ? sizeof(peel_control) : draw_.below(200));
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(draw_.below(256));
    if (bytes.size() >= 4 && draw_.below(2) != 0) {
      bytes[0] = PEEL_WIRE_MAGIC & 0xFF;
      bytes[1] = PEEL_WIRE_MAGIC >> 8;
      bytes[2] = PEEL_WIRE_VERSION;
    }
    if (bytes.size() >= 4 && bytes[3] == PEEL_KIND_CONTROL) {
      const Bytes reply = aggregator_.admission().take({from(0), {}, bytes}, applicant_.now);
      demand(reply.size() <= bytes.size());
      return;
    }
    if (bytes.size() >= sizeof(peel_packet) && draw_.below(2) != 0) {
      peel_packet header;
      std::memcpy(&header, bytes.data(), sizeof header);
      header.words = static_cast<std::uint16_t>((bytes.size() - sizeof header) / 4);
      bytes.resize(sizeof header + std::size_t{4} * header.words);
      header.check = peel::detail::check_of(header, bytes.data() + sizeof header);
      std::memcpy(bytes.data(), &header, sizeof header);
    }
    watch(from(draw_.below(kWorkers)), bytes);
  }

  void data() {
    const auto worker = static_cast<unsigned>(draw_.below(kWorkers));
    const peel_control& job = jobs_[draw_.below(2)];
    peel_packet header = peel::testing::data_header(job, worker, static_cast<std::uint32_t>(draw_.below(4)),
                                                    static_cast<std::uint32_t>(draw_.below(6)));
    header.operation = static_cast<std::uint8_t>(draw_.below(16) == 0 ? PEEL_OR32 : PEEL_SUM32);
    header.tag = static_cast<std::uint32_t>(draw_.below(16) == 0 ? 1 : 0);
    std::vector<std::uint32_t> words(draw_.below(16) == 0 ? draw_.below(10) : 2);
    for (std::uint32_t& word : words) word = static_cast<std::uint32_t>(draw_.below(256)) * 0x01010101U;
    watch(from(draw_.below(16) == 0 ? draw_.below(kWorkers) : worker), peel::testing::to_bytes(header, words));
  }

  void watch(const peel::aggregator::Endpoint& sender, const Bytes& datagram) {
    const std::uint64_t combined = aggregator_.tally().combined;
    const Outcome outcome = aggregator_.on_data(0, sender, datagram, applicant_.now);
    peel_packet packet{};
    if (datagram.size() >= sizeof packet) std::memcpy(&packet, datagram.data(), sizeof packet);
    Round& round = rounds_[{packet.cookie, packet.slot, packet.round}];
    if (aggregator_.tally().combined != combined) enter(round, packet, datagram);
    if (outcome.to == Outcome::To::nobody) return;
    demand(peel::detail::check_of(outcome.header, outcome.words.data()) == outcome.header.check);
    demand(outcome.words.size() == outcome.header.words && outcome.header.cookie == packet.cookie);
    if (outcome.header.kind == PEEL_KIND_REFUSAL) return demand(outcome.to == Outcome::To::sender);
    demand(outcome.header.kind == PEEL_KIND_RESULT && round.seen == (1U << kWorkers) - 1);
    demand(std::equal(outcome.words.begin(), outcome.words.end(), round.words.begin(), round.words.end()));
  }

  static void enter(Round& round, const peel_packet& packet, const Bytes& datagram) {
    std::vector<std::uint32_t> words(packet.words);
    std::memcpy(words.data(), datagram.data() + sizeof packet, 4 * words.size());
    demand((round.seen >> packet.worker & 1) == 0);
    if (round.seen == 0) round.words.assign(words.size(), 0);
    demand(round.words.size() == words.size());
    round.seen |= std::uint64_t{1} << packet.worker;
    for (std::size_t i = 0; i < words.size(); ++i) {
      round.words[i] = packet.operation == PEEL_OR32 ? round.words[i] | words[i] : round.words[i] + words[i];
    }
  }

  ByteDraw& draw_;
  Aggregator aggregator_{limits(), {peel::aggregator::Secrets(peel::testing::kSecret), {}}, 1};
  Applicant applicant_{aggregator_};
  peel_control jobs_[2]{};
  std::map<Key, Round> rounds_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ByteDraw draw(data, size);
  Watch watch(draw);
  for (int step = 0; step < 300 && !draw.empty(); ++step) watch.step();
  return 0;
}
