// Control packets: who is let in, who leaves, and how the switch is doing. A request without the right MAC gets no
// answer. One that joins must also hold a challenge that was sent to its address a moment ago: so nobody joins with
// packets that he only saw, or with the address of somebody else.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "switch/core/jobs.h"
#include "switch/core/tally.h"

namespace peel::aggregator {

struct Keys {
  std::string secret;                      // shared with the workers
  std::array<std::uint8_t, 32> boot = {};  // of this run of the switch alone, at random
};

class Admission {
 public:
  Admission(JobTable& jobs, const Census& census, Keys keys);

  struct Reply {
    std::vector<std::uint8_t> datagram;  // empty: none
    bool is_signed = true;               // whether what came was
  };
  Reply answer(const Endpoint& from, std::span<const std::uint8_t> datagram, Time now);

 private:
  Reply join(const Endpoint& from, const peel_control& ask, Time now);
  Reply leave(const peel_control& ask);
  Reply status(const peel_control& ask, Time now) const;
  [[nodiscard]] std::uint64_t challenge(const Endpoint& from, const peel_control& ask, std::uint64_t window) const;
  [[nodiscard]] Reply reply(const peel_control& ask, peel_wire_verb verb, peel_wire_reason reason) const;

  JobTable& jobs_;
  const Census& census_;
  Keys keys_;
};

}  // namespace peel::aggregator
