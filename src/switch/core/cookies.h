// Cookies of jobs: unpredictable to whoever does not have the boot key.
#pragma once

#include <array>
#include <cstdint>

#include "switch/wire/mac.h"

namespace peel::aggregator {

class Cookies {
 public:
  Cookies(const std::array<std::uint8_t, 32>& boot, std::uint64_t seed) : boot_(boot), draws_(seed) {}

  std::uint64_t draw() {
    ++draws_;
    return detail::first_word(
        detail::hmac_sha256(boot_, {reinterpret_cast<const std::uint8_t*>(&draws_), sizeof draws_}));
  }

 private:
  std::array<std::uint8_t, 32> boot_;
  std::uint64_t draws_;
};

}  // namespace peel::aggregator
