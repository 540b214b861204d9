// Which chunk to send next. Chunk c goes through slot c mod slots, and only when the result of chunk c - slots is
// there: results clock what is sent, so a slow worker or link slows everybody down and nothing piles up.
//
// Loss is told by order: when a packet has its result, those that were sent well before it and have none are sent
// again, also if it was another worker's packet that was lost, since nobody can know that. What ends a burst of losses
// is a probe: after a time-out, which doubles, the oldest chunk goes out again, alone; and if only what was probed has
// its result, twice as many the next time. So a worker that lags by seconds costs a packet now and then, not a window
// of them, and a window that was lost as a whole is there again after a few probes.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace peel::detail {

class Window {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Span = std::chrono::steady_clock::duration;

  // Of `slots` chunks at most `limit` are on the way at a time. Chunks of different lanes may overtake each other.
  Window(std::uint32_t slots, std::uint32_t limit, std::uint32_t lanes);

  // There are so many more chunks.
  void extend(std::uint64_t chunks) { end_ += chunks; }
  // A chunk to send now, for the first time or again; it counts as sent.
  std::optional<std::uint64_t> next(Time now);
  // The result of the slot's chunk is there.
  void land(std::uint32_t slot, Time now);

  // The chunk of which the slot awaits the result.
  [[nodiscard]] std::optional<std::uint64_t> awaited(std::uint32_t slot) const;
  // When next() has something though nothing landed; none while nothing is on the way.
  [[nodiscard]] std::optional<Time> deadline() const;
  [[nodiscard]] std::uint64_t resent() const noexcept { return resent_; }

 private:
  struct Slot {
    std::uint64_t chunk = 0;
    std::uint64_t serial = 0;  // of its last transmission
    Time sent{};
    bool awaited = false;
    bool again = false;  // sent more than once: no measure of time
  };
  struct Transmission {
    std::uint64_t serial = 0;
    std::uint32_t slot = 0;
  };

  [[nodiscard]] std::uint32_t lane(std::uint32_t slot) const noexcept;
  [[nodiscard]] bool is_current(const Transmission& one) const;
  std::optional<std::uint32_t> oldest();
  std::uint64_t send(std::uint32_t slot, Time now);
  void learn(Span time);
  [[nodiscard]] Span patience() const;

  std::vector<Slot> slots_;
  std::vector<std::deque<Transmission>> order_;  // of each lane, oldest first
  std::deque<Transmission> lost_;
  std::uint64_t next_ = 0;  // the first chunk that was never sent
  std::uint64_t end_ = 0;
  std::uint32_t on_the_way_ = 0;
  std::uint32_t allowed_;
  std::uint32_t limit_;
  std::uint64_t serial_ = 0;
  std::uint64_t resent_ = 0;
  unsigned probes_ = 0;         // since something landed
  std::uint32_t burst_ = 1;     // chunks of a probe
  std::uint32_t unprobed_ = 0;  // of them, still to be sent
  bool answered_ = false;       // something that was sent again landed, and nothing else
  Time moved_{};                // when something last landed, was probed, or began
  Span fastest_;                // from sending to the result
};

}  // namespace peel::detail
