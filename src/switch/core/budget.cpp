#include "switch/core/budget.h"

#include <algorithm>
#include <cstring>

#include "switch/wire/siphash.h"

namespace peel::aggregator {
namespace {

constexpr std::size_t kSources = 4096;
constexpr std::uint32_t kOfOne = 2000;  // a second; a host of 16 workers that join needs some 300
constexpr std::uint32_t kOfAll = 20000;
constexpr std::uint32_t kBurst = 4;  // of a second, its part that may come at once

}  // namespace

void Bucket::fill(std::uint32_t each_second, std::uint32_t most, Time now) {
  if (!used_) {
    left_ = most;
    filled_ = now;
    used_ = true;
  }
  const auto passed = static_cast<std::uint64_t>(std::max(Time{}, now - filled_).count());
  const std::uint64_t more = passed * each_second / 1000;
  if (more == 0) return;
  left_ = static_cast<std::uint32_t>(std::min<std::uint64_t>(left_ + more, most));
  filled_ = now;
}

Budget::Budget(std::uint64_t seed) : seed_(seed), sources_(kSources) {}

bool Budget::take(const IpAddress& address, Time now) {
  std::uint64_t halves[2];
  std::memcpy(halves, address.data(), sizeof halves);
  if (!is_four(address)) halves[1] = 0;  // who has one address of IPv6 has all that begin alike
  peel_siphash state;
  peel_siphash_begin(&state, seed_, 0);
  peel_siphash_add(&state, halves[0]);
  peel_siphash_add(&state, halves[1]);
  Bucket& source = sources_[peel_siphash_end(&state, 0, sizeof halves) % kSources];
  source.fill(kOfOne, kOfOne / kBurst, now);
  if (source.empty() || !all_.take(kOfAll, kOfAll / kBurst, now)) return false;
  return source.take(kOfOne, kOfOne / kBurst, now);
}

}  // namespace peel::aggregator
