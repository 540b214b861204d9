// Packets as a worker makes them, for tests that speak to the switch themselves.
#pragma once

#include <cstring>
#include <functional>
#include <vector>

#include "switch/core/aggregator.h"
#include "switch/wire/check.h"
#include "switch/wire/control.h"

namespace peel::testing {

inline constexpr const char* kSecret = "open sesame";

inline aggregator::Endpoint endpoint(unsigned worker, std::uint16_t port = 5000) {
  aggregator::Endpoint one;
  one.address = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, 0, static_cast<std::uint8_t>(worker + 1)};
  one.port = port;
  return one;
}

using Bytes = std::vector<std::uint8_t>;

inline Bytes to_bytes(peel_packet header, const std::vector<std::uint32_t>& words) {
  header.words = static_cast<std::uint16_t>(words.size());
  header.check = detail::check_of(header, words.data());
  Bytes datagram(sizeof header + 4 * words.size());
  std::memcpy(datagram.data(), &header, sizeof header);
  if (!words.empty()) std::memcpy(datagram.data() + sizeof header, words.data(), 4 * words.size());
  return datagram;
}

inline peel_packet data_header(const peel_control& admitted, unsigned worker, std::uint32_t slot, std::uint32_t round) {
  peel_packet header{};
  header.magic = PEEL_WIRE_MAGIC;
  header.version = PEEL_WIRE_VERSION;
  header.kind = PEEL_KIND_DATA;
  header.job = admitted.job;
  header.cookie = admitted.cookie;
  header.worker = static_cast<std::uint8_t>(worker);
  header.slot = slot;
  header.round = round;
  return header;
}

// A worker's half of job control, one packet at a time.
struct Applicant {
  template <typename Switch>
  explicit Applicant(Switch& one)
      : answer([&one](const auto& from, const Bytes& datagram, aggregator::Time when) {
          return one.on_control(from, datagram, when);
        }) {}

  std::function<Bytes(const aggregator::Endpoint&, const Bytes&, aggregator::Time)> answer;
  aggregator::Time now{};

  peel_control ask(const peel_control& request, const aggregator::Endpoint& from, const char* secret = kSecret) const {
    const auto reply = answer(from, detail::sign(secret, request), now);
    const auto opened = detail::open(kSecret, reply);
    return opened ? *opened : peel_control{};
  }
  [[nodiscard]] static peel_control request(unsigned worker, unsigned workers, const char* job = "job",
                                            std::uint64_t incarnation = 1) {
    peel_control control = detail::make_control(PEEL_VERB_HELLO);
    control.name = detail::job_name(job);
    control.incarnation = incarnation;
    control.worker = static_cast<std::uint8_t>(worker);
    control.workers = static_cast<std::uint8_t>(workers);
    control.words = PEEL_WIRE_WORDS_SMALL;
    control.slot_count = 4;
    return control;
  }
  // What it is told when it joins: verb is ADMITTED or REFUSED.
  peel_control join(peel_control request, const aggregator::Endpoint& from) const {
    request.challenge = ask(request, from).challenge;
    request.verb = PEEL_VERB_JOIN;
    return ask(request, from);
  }
  peel_control join(unsigned worker, unsigned workers, const char* job = "job", std::uint64_t incarnation = 1) const {
    return join(request(worker, workers, job, incarnation), endpoint(worker));
  }
  void leave(const peel_control& admitted, const aggregator::Endpoint& from) const {
    peel_control farewell = admitted;
    farewell.verb = PEEL_VERB_LEAVE;
    ask(farewell, from);
  }
};

}  // namespace peel::testing
