#include "transport/switch/window.h"

#include <algorithm>

#include "switch/wire/lanes.h"

namespace peel::detail {
namespace {

using std::chrono::milliseconds;

constexpr std::uint32_t kFirst =
    16;  // chunks on the way before anything is known of the path; one more for each result
constexpr std::uint64_t kReordering = 3;  // packets that may overtake one that is not lost, as in TCP
constexpr milliseconds kShortest{2};      // between probes: below, a worker that was not scheduled looks like a loss
constexpr milliseconds kLongest{200};
constexpr milliseconds kUnknown{5};

}  // namespace

Window::Window(std::uint32_t slots, std::uint32_t limit, std::uint32_t lanes)
    : slots_(slots),
      order_(lanes),
      allowed_(std::min({kFirst, slots, limit})),
      limit_(std::min(slots, limit)),
      fastest_(kUnknown) {}

std::uint32_t Window::lane(std::uint32_t slot) const noexcept {
  return lane_of(slot, static_cast<std::uint32_t>(slots_.size()), static_cast<std::uint32_t>(order_.size()));
}

bool Window::is_current(const Transmission& one) const {
  return slots_[one.slot].awaited && slots_[one.slot].serial == one.serial;
}

std::optional<std::uint64_t> Window::next(Time now) {
  while (!lost_.empty()) {
    const Transmission one = lost_.front();
    lost_.pop_front();
    if (!is_current(one)) continue;
    slots_[one.slot].again = true;
    ++resent_;
    return send(one.slot, now);
  }
  if (on_the_way_ != 0 && now - moved_ >= patience()) {
    burst_ = answered_ ? std::min(2 * burst_, on_the_way_) : 1;
    answered_ = false;
    unprobed_ = burst_;  // as many of the oldest
    ++probes_;
    moved_ = now;
  }
  if (unprobed_ != 0) {
    --unprobed_;
    const std::uint32_t slot = *oldest();
    slots_[slot].again = true;
    ++resent_;
    return send(slot, now);
  }
  if (next_ == end_ || on_the_way_ >= allowed_) return std::nullopt;
  const auto slot = static_cast<std::uint32_t>(next_ % slots_.size());
  if (slots_[slot].awaited) return std::nullopt;
  if (on_the_way_ == 0) moved_ = now;
  ++on_the_way_;
  slots_[slot] = {.chunk = next_++, .awaited = true};
  return send(slot, now);
}

std::uint64_t Window::send(std::uint32_t slot, Time now) {
  slots_[slot].serial = serial_++;
  slots_[slot].sent = now;
  order_[lane(slot)].push_back({slots_[slot].serial, slot});
  return slots_[slot].chunk;
}

void Window::land(std::uint32_t slot, Time now) {
  Slot& one = slots_[slot];
  if (!one.awaited) return;
  one.awaited = false;
  --on_the_way_;
  allowed_ = std::min(allowed_ + 1, limit_);
  probes_ = 0;
  moved_ = now;
  unprobed_ = std::min(unprobed_, on_the_way_);
  answered_ |= one.again;
  std::deque<Transmission>& order = order_[lane(slot)];
  // Of what was sent twice nobody knows which one was answered, so it tells nothing of the others, nor of the time.
  if (!one.again) {
    learn(now - one.sent);
    burst_ = 1;
    answered_ = false;
    while (!order.empty() && order.front().serial + kReordering < one.serial) {
      if (is_current(order.front())) lost_.push_back(order.front());
      order.pop_front();
    }
  }
  while (!order.empty() && !is_current(order.front())) order.pop_front();
}

// Chunks that are known to be lost are not in any order until they are sent again.
std::optional<std::uint32_t> Window::oldest() {
  std::optional<std::uint32_t> found;
  for (std::deque<Transmission>& order : order_) {
    while (!order.empty() && !is_current(order.front())) order.pop_front();
    if (order.empty()) continue;
    if (!found || order.front().serial < slots_[*found].serial) found = order.front().slot;
  }
  return found;
}

std::optional<std::uint64_t> Window::awaited(std::uint32_t slot) const {
  if (slot >= slots_.size() || !slots_[slot].awaited) return std::nullopt;
  return slots_[slot].chunk;
}

std::optional<Window::Time> Window::deadline() const {
  if (on_the_way_ == 0) return std::nullopt;
  return moved_ + patience();
}

// What took longer waited for others or in queues, and says nothing of the path.
void Window::learn(Span time) { fastest_ = std::min(fastest_, time); }

// Nothing at all landed for so long. A probe in vain costs one packet, so a few times the path is enough.
Window::Span Window::patience() const {
  const Span once = std::clamp<Span>(4 * fastest_, kShortest, kLongest);
  return std::min<Span>(once * (1U << std::min(probes_, 8U)), kLongest);
}

}  // namespace peel::detail
