// Numbers that decide in which order things happen, from PEEL_STAND_IN_SEED. The same seed gives the same order within
// a kernel; between streams it also depends on when the host asks.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace stand_in {

class Chance {
 public:
  explicit Chance(std::uint64_t purpose) {
    const char* seed = std::getenv("PEEL_STAND_IN_SEED");
    state_ = (seed == nullptr ? 1 : std::strtoull(seed, nullptr, 10)) * 0x9E3779B97F4A7C15ull + purpose;
    for (int i = 0; i < 4; ++i) (void)next();
  }

  std::uint32_t next() {
    state_ = state_ * 0x5851F42D4C957F2Dull + 0x14057B7EF767814Full;
    return static_cast<std::uint32_t>(state_ >> 33) ^ static_cast<std::uint32_t>(state_ >> 60);
  }
  std::uint32_t below(std::uint32_t end) { return static_cast<std::uint32_t>(std::uint64_t{next()} * end >> 31); }

 private:
  std::uint64_t state_;
};

}  // namespace stand_in
