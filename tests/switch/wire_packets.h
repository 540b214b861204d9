// Packets as a worker makes them, for tests that speak to the switch themselves.
#pragma once

#include <cstring>
#include <functional>
#include <vector>

#include "switch/core/aggregator.h"
#include "switch/wire/check.h"
#include "switch/wire/control.h"

namespace peel::testing {

inline constexpr const char* kSecret = "open sesame, open sesame";

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

// A control packet as whoever asks would send it: HELLO as it is, all else signed, QUERY as long as its answer.
inline Bytes to_bytes(const peel_control& control, const char* secret = kSecret) {
  if (control.verb == PEEL_VERB_HELLO) return detail::pad(control);
  Bytes datagram = detail::sign(secret, control);
  if (control.verb == PEEL_VERB_QUERY) datagram.resize(PEEL_WIRE_QUERY_BYTES);
  return datagram;
}

// Of a reply: nothing unless it is signed, or is one of those that are not.
inline peel_control open(const Bytes& reply, const char* secret = kSecret) {
  const auto control = detail::read_control(reply);
  if (!control) return {};
  const bool is_plain = control->verb == PEEL_VERB_CHALLENGE ||
                        (control->verb == PEEL_VERB_REFUSED &&
                         (control->reason == PEEL_REASON_BAD_CHALLENGE || control->reason == PEEL_REASON_BAD_SECRET));
  return is_plain || detail::is_signed(secret, reply) ? *control : peel_control{};
}

// A worker's half of job control, one packet at a time.
struct Applicant {
  template <typename Switch>
  explicit Applicant(Switch& one)
      : answer([&one](const auto& from, const Bytes& datagram, aggregator::Time when) {
          if constexpr (requires { one.admission(); }) {
            return one.admission().take({from, {}, datagram}, when);
          } else {
            return one.on_control(from, datagram, when);
          }
        }) {}

  std::function<Bytes(const aggregator::Endpoint&, const Bytes&, aggregator::Time)> answer;
  aggregator::Time now{};

  peel_control ask(const peel_control& request, const aggregator::Endpoint& from, const char* secret = kSecret) const {
    return open(answer(from, to_bytes(request, secret), now), secret);
  }
  [[nodiscard]] static peel_control request(unsigned worker, unsigned workers, const char* job = "job",
                                            std::uint64_t incarnation = 1) {
    peel_control control = detail::make_control(PEEL_VERB_HELLO);
    detail::set_name(control.name, job);
    control.incarnation = incarnation;
    control.worker = static_cast<std::uint8_t>(worker);
    control.workers = static_cast<std::uint8_t>(workers);
    control.words = PEEL_WIRE_WORDS_SMALL;
    control.slot_count = 4;
    return control;
  }
  // With a challenge that holds there.
  peel_control prove(peel_control request, const aggregator::Endpoint& from, peel_wire_verb verb) const {
    request.verb = PEEL_VERB_HELLO;
    request.challenge = ask(request, from).challenge;
    request.verb = static_cast<std::uint8_t>(verb);
    return request;
  }
  // What it is told when it joins: verb is ADMITTED or REFUSED.
  peel_control join(const peel_control& request, const aggregator::Endpoint& from, const char* secret = kSecret) const {
    return ask(prove(request, from, PEEL_VERB_JOIN), from, secret);
  }
  peel_control join(unsigned worker, unsigned workers, const char* job = "job", std::uint64_t incarnation = 1) const {
    return join(request(worker, workers, job, incarnation), endpoint(worker));
  }
  void leave(const peel_control& admitted, const aggregator::Endpoint& from) const {
    peel_control farewell = admitted;
    farewell.verb = PEEL_VERB_LEAVE;
    ask(farewell, from);
  }
  // A sign of life, from a socket beside that of the data.
  peel_control keep_alive(const peel_control& admitted, const aggregator::Endpoint& data,
                          std::uint64_t sequence) const {
    peel_control sign = admitted;
    sign.verb = PEEL_VERB_KEEPALIVE;
    sign.sequence = sequence;
    return ask(sign, pulse(data));
  }
  static aggregator::Endpoint pulse(aggregator::Endpoint data) {
    data.port = static_cast<std::uint16_t>(data.port + 1000);
    return data;
  }
};

}  // namespace peel::testing
