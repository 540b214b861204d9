// Data of any length between two workers, cut into segments. In which order the segments of several streams leave is
// decided in rotation.h.
//
// A stream may begin with its length (kLengthBytes), for a receiver that does not know it: still one message where the
// data fit in one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>

#include "transport/point_to_point.h"

namespace peel::detail {

inline constexpr std::size_t kLengthBytes = sizeof(std::uint64_t);

enum class Framing : std::uint8_t { bare, with_length };

// How many segments a stream has; one with its length has at least one.
std::size_t segments_of(std::size_t length, Framing framing) noexcept;

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
  // Segments that have arrived in order, taken or not.
  [[nodiscard]] std::size_t arrived() const noexcept;
  // Whether that are all there are.
  [[nodiscard]] bool all_arrived() const noexcept;
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
  std::size_t popped_ = 0;  // segments
  bool checked_ = false;    // the one in front
  std::deque<Ticket> arriving_;
  std::size_t window_;  // how many may be there
};

}  // namespace peel::detail
