// Data of any length between two workers, cut into segments. A stream has a few segments under way at a time, so that
// the link never idles while memory stays bounded, and streams that share a link share it fairly.
//
// A stream may begin with its length (kLengthBytes), for a receiver that does not know it: still one message where the
// data fit in one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "transport/point_to_point.h"

namespace peel::detail {

inline constexpr std::size_t kLengthBytes = sizeof(std::uint64_t);

enum class Framing : std::uint8_t { bare, with_length };

// Cuts data into the segments of a stream.
class Cutter {
 public:
  Cutter(std::span<const std::byte> data, Framing framing);
  [[nodiscard]] bool exhausted() const noexcept { return position_ == total_; }
  // How much of the data was copied: what lies before may be overwritten.
  [[nodiscard]] std::size_t copied() const noexcept { return position_ < header_ ? 0 : position_ - header_; }
  Block next(PointToPoint& link);

 private:
  std::span<const std::byte> data_;
  std::size_t header_;
  std::size_t total_;         // header and data
  std::size_t position_ = 0;  // of both
};

// Segments on their way to other workers.
class Departures {
 public:
  explicit Departures(std::size_t window) : window_(window) {}
  [[nodiscard]] bool has_room() const noexcept { return under_way_.size() < window_; }
  [[nodiscard]] bool empty() const noexcept { return under_way_.empty(); }
  void add(unsigned peer, Ticket ticket) { under_way_.push_back({peer, std::move(ticket)}); }
  // Forgets those that left; true if one did.
  bool retire();
  void awaited(std::vector<unsigned>& workers) const;

 private:
  struct Departure {
    unsigned peer;
    Ticket ticket;
  };
  std::size_t window_;
  std::vector<Departure> under_way_;
};

// How many segments to have under way with each of `peers` workers.
std::size_t window_for(std::size_t peers) noexcept;

// Data for one worker.
class Outgoing {
 public:
  Outgoing(PointToPoint& link, unsigned peer, const Tag& tag, std::span<const std::byte> data, Framing framing);
  bool advance();
  [[nodiscard]] bool done() const noexcept { return cutter_.exhausted() && departures_.empty(); }
  [[nodiscard]] std::size_t copied() const noexcept { return cutter_.copied(); }
  void awaited(std::vector<unsigned>& workers) const { departures_.awaited(workers); }

 private:
  PointToPoint& link_;
  unsigned peer_;
  Tag tag_;
  Cutter cutter_;
  Departures departures_;
};

// The same segments for all other workers; each is copied once.
class Broadcast {
 public:
  Broadcast(PointToPoint& link, const Tag& tag);
  [[nodiscard]] bool has_room() const noexcept { return departures_.has_room(); }
  [[nodiscard]] bool done() const noexcept { return departures_.empty(); }
  bool retire() { return departures_.retire(); }
  void send(const Block& block);
  void awaited(std::vector<unsigned>& workers) const { departures_.awaited(workers); }

 private:
  PointToPoint& link_;
  Tag tag_;
  Departures departures_;
};

// Data from one worker, segment by segment.
class Incoming {
 public:
  // `length` is empty where the stream tells it.
  Incoming(PointToPoint& link, unsigned peer, const Tag& tag, std::optional<std::size_t> length);
  // Asks for as many segments as the window allows.
  void post();
  // The next segment's data, without the length it may begin with; empty if it has not arrived or the stream is over.
  [[nodiscard]] std::optional<std::span<const std::byte>> front();
  // Where they lie in the data.
  [[nodiscard]] std::size_t position() const noexcept { return taken_ < header_ ? 0 : taken_ - header_; }
  // Takes the segment away.
  Block pop();
  [[nodiscard]] bool done() const noexcept { return total_ && taken_ == *total_; }
  [[nodiscard]] unsigned peer() const noexcept { return peer_; }
  // The length of the data, known once front() gave something.
  [[nodiscard]] std::size_t length() const noexcept { return *total_ - header_; }

 private:
  void check(const Memory& segment);

  PointToPoint& link_;
  unsigned peer_;
  Tag tag_;
  std::size_t header_;
  std::optional<std::size_t> total_;  // header and data
  std::size_t asked_ = 0;             // bytes for which receives were posted
  std::size_t taken_ = 0;
  bool checked_ = false;  // the segment in front
  std::deque<Ticket> arriving_;
  std::size_t window_;
};

}  // namespace peel::detail
