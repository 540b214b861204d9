// How much is done for strangers: so many packets a second from one address, and from all of them together. What is
// beyond that is dropped unread, so that those who have no secret cost the switch little, whatever they send.
#pragma once

#include <cstdint>
#include <vector>

#include "switch/core/jobs.h"

namespace peel::aggregator {

// So many packets a second, and so many at once.
class Bucket {
 public:
  // Whether there is something left.
  bool take(std::uint32_t each_second, std::uint32_t most, Time now) {
    fill(each_second, most, now);
    if (left_ == 0) return false;
    --left_;
    return true;
  }
  void fill(std::uint32_t each_second, std::uint32_t most, Time now);
  [[nodiscard]] bool empty() const noexcept { return left_ == 0; }

 private:
  std::uint32_t left_ = 0;
  Time filled_{};
  bool used_ = false;
};

class Budget {
 public:
  explicit Budget(std::uint64_t seed);
  // Whether there is something left for a packet from there.
  bool take(const IpAddress& address, Time now);

 private:
  std::uint64_t seed_;
  std::vector<Bucket> sources_;  // addresses share them by a hash that nobody outside can foresee
  Bucket all_;
};

}  // namespace peel::aggregator
