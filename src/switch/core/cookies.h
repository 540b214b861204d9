// Cookies and keys of jobs, and the numbers of questions: unpredictable to whoever does not have the boot key. They are
// drawn while lanes stand still, so it is SipHash that makes them, in some 20 ns, and no HMAC.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "switch/wire/siphash.h"

namespace peel::aggregator {

class Cookies {
 public:
  // Challenges take the first half of the boot key, and these the second.
  Cookies(const std::array<std::uint8_t, 32>& boot, std::uint64_t seed) : draws_(seed) {
    std::memcpy(key_.data(), boot.data() + sizeof key_, sizeof key_);
  }

  std::uint64_t draw() {
    peel_siphash state;
    peel_siphash_begin(&state, key_[0], key_[1]);
    peel_siphash_add(&state, ++draws_);
    return peel_siphash_end(&state, 0, sizeof draws_);
  }

 private:
  std::array<std::uint64_t, 2> key_{};
  std::uint64_t draws_;
};

}  // namespace peel::aggregator
