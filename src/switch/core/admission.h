// Control packets: who is let in, who leaves, who is alive, and how the switch is doing.
//
// What is cheap comes first. A datagram of a wrong length or kind is dropped unread. HELLO is answered to anybody, with
// a challenge that takes one keyed hash and no memory. All else must hold a challenge that was sent to its address a
// moment ago, or the cookie of a job; only then its MAC is looked at, which takes a hundred times as long. So nobody
// joins or asks with packets that he only saw, or with the address of somebody else, and all that is done for those
// without a secret comes out of a budget. Members have one each, so that strangers cannot use it up. No reply is longer
// than what it answers. Reading and sealing take hashes and no lock; only what lies between them, answering, may have
// to wait for lanes.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "switch/core/budget.h"
#include "switch/core/jobs.h"
#include "switch/core/tally.h"

namespace peel::aggregator {

struct Keys {
  Secrets secrets;                         // shared with the workers
  std::array<std::uint8_t, 32> boot = {};  // of this run of the switch alone, at random
};

// A datagram that came to the port of control packets.
struct Arrival {
  Endpoint from;
  IpAddress here{};
  std::span<const std::uint8_t> datagram;
};

// One that is to be sent from there.
struct Outgoing {
  Endpoint to;
  IpAddress here{};
  std::vector<std::uint8_t> datagram;
};

class Admission {
 public:
  Admission(JobTable& jobs, const Census& census, const Keys& keys, Journal journal = {});

  // What the first look at a datagram gives, which reads jobs and changes none.
  struct Reading {
    std::vector<std::uint8_t> reply;      // can be sent at once, if there is one
    std::optional<peel_control> request;  // authentic, and to be answered
    Secret secret;
    bool of_member = false;  // it is of one who is in: LEAVE, KEEPALIVE, or JOIN once more
    // Whether answering it changes jobs or looks at slots, so that all lanes must stand still.
    [[nodiscard]] bool touches_slots() const noexcept;
  };
  Reading read(const Arrival& arrival, Time now);

  // A reply that is not signed yet.
  struct Draft {
    peel_control control;
    std::vector<std::uint8_t> records;  // that follow in STATUS
  };
  std::optional<Draft> answer(const Arrival& arrival, const Reading& reading, Time now);
  // As it is sent.
  [[nodiscard]] static std::vector<std::uint8_t> seal(const Arrival& arrival, const Reading& reading,
                                                      const Draft& draft);

  // All three, for one who has no lanes.
  std::vector<std::uint8_t> take(const Arrival& arrival, Time now);

  // The network gave back what was sent to somebody who is not there; so much of it as it quotes.
  void take_refused(std::span<const std::uint8_t> quote);
  // What JobTable::take_notices tells, as packets.
  std::vector<Outgoing> notices();

  // The port of the first lane.
  void set_data_port(std::uint16_t port) noexcept { data_port_ = port; }
  // The TCP port that is open while the switch lives; 0: none.
  void set_life_port(std::uint16_t port) noexcept { life_port_ = port; }
  void set_secrets(Secrets secrets) { keys_.secrets = std::move(secrets); }
  // Of control packets alone.
  [[nodiscard]] const Tally& tally() const noexcept { return tally_; }
  void count_sent(std::uint64_t packets) noexcept { tally_.sent += packets; }
  // Packets that the socket dropped, in all.
  void set_unread(std::uint64_t packets) noexcept { tally_.dropped[PEEL_DROP_UNREAD] = packets; }

 private:
  Reading drop(peel_drop why);
  bool may_ask(const Job& job, std::uint8_t worker, Time now);
  Reading read_of_member(const Arrival& arrival, const peel_control& ask, Time now);
  Reading authenticate(const Arrival& arrival, const peel_control& ask, const std::vector<Secret>& secrets);
  std::optional<Draft> join(const Arrival& arrival, const peel_control& ask, const Secret& secret, Time now);
  std::optional<Draft> keep_alive(const Arrival& arrival, const peel_control& ask, Time now);
  Draft status(const peel_control& ask, std::size_t most, Time now);  // with so many jobs at most
  std::uint32_t busy_slots(const Job& job, Time now);
  [[nodiscard]] peel_control state_of(const Job& job, const peel_control& ask) const;
  [[nodiscard]] std::uint64_t challenge(const Endpoint& from, std::uint64_t incarnation, std::uint64_t window) const;
  [[nodiscard]] bool is_fresh(const Arrival& arrival, const peel_control& ask, Time now) const;
  void note_refusal(const Arrival& arrival, const peel_control& ask, peel_wire_reason reason);
  void note_stranger(const Arrival& arrival, const peel_control& ask, Time now);

  JobTable& jobs_;
  const Census& census_;
  Keys keys_;
  // Of what anybody may send with any address, and of what only who got a challenge there can: a flood of the one
  // leaves the other alone.
  Budget unproven_;
  Budget proven_;
  std::vector<Bucket> members_;  // by the number of a job, and the worker
  Journal journal_;
  Tally tally_;
  std::uint16_t data_port_ = 0;
  std::uint16_t life_port_ = 0;
  struct Counted {
    std::uint64_t cookie = 0;
    Time when{};
    std::uint32_t busy = 0;
  };
  std::vector<Counted> counted_;  // by the number of a job
  struct Refusal {
    std::uint64_t incarnation = 0;
    peel_wire_reason reason = PEEL_REASON_NONE;
    bool operator==(const Refusal&) const = default;
  };
  std::deque<Refusal> refused_;  // the last ones that were noted
  std::optional<Time> noted_;    // when somebody without a secret was
};

}  // namespace peel::aggregator
