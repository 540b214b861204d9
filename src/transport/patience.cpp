#include "transport/patience.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace peel::detail {
namespace {

using std::chrono::steady_clock;

// A worker that did not test for a long time (it computed, or was stopped) did not wait: others may have been held up
// by it, not it by others. No gap between two tests counts for more than this.
constexpr steady_clock::duration kLongestGap = std::chrono::milliseconds(50);

}  // namespace

Patience::Patience(std::chrono::milliseconds timeout) : timeout_(timeout), tested_(steady_clock::now()) {}

bool Patience::lasts(bool moved) {
  const steady_clock::time_point now = steady_clock::now();
  waited_ = moved ? steady_clock::duration{} : waited_ + std::min(now - tested_, kLongestGap);
  tested_ = now;
  return waited_ < timeout_;
}

std::string Patience::waited() const {
  std::array<char, 32> text{};
  (void)std::snprintf(text.data(), text.size(), "%.3g s", std::chrono::duration<double>(waited_).count());
  return text.data();
}

}  // namespace peel::detail
