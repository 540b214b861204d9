// How much is done for strangers: so many packets a second from one address, and from all of them together. What is
// beyond that is dropped unread, so that those who have no secret cost the switch little, whatever they send.
#pragma once

#include <cstdint>
#include <vector>

#include "switch/core/jobs.h"

namespace peel::aggregator {

class Budget {
 public:
  explicit Budget(std::uint64_t seed);
  // Whether there is something left for a packet from there.
  bool take(const IpAddress& address, Time now);

 private:
  struct Bucket {
    std::uint32_t left = 0;
    Time filled{};
    bool used = false;
  };
  static void fill(Bucket& bucket, std::uint32_t each_second, std::uint32_t most, Time now);

  std::uint64_t seed_;
  std::vector<Bucket> sources_;  // addresses share them by a hash that nobody outside can foresee
  Bucket all_;
};

}  // namespace peel::aggregator
