#include "transport/stream.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace peel::detail {
namespace {

// How many segments to ask all workers for in advance: a segment that arrives unasked is copied once more.
constexpr std::size_t kAsked = 32;

}  // namespace

std::size_t segments_of(std::size_t length, Framing framing) noexcept {
  const std::size_t total = length + (framing == Framing::with_length ? kLengthBytes : 0);
  return (total + kSegmentBytes - 1) / kSegmentBytes;
}

Cutter::Cutter(std::span<const std::byte> data, Framing framing)
    : data_(data), header_(framing == Framing::with_length ? kLengthBytes : 0), total_(header_ + data.size()) {}

Block Cutter::next(PointToPoint& link) {
  const std::size_t bytes = std::min(kSegmentBytes, total_ - position_);
  Block block = link.take(bytes);
  std::size_t filled = 0;
  if (position_ < header_) {
    const std::uint64_t length = data_.size();
    std::memcpy(block->data(), &length, kLengthBytes);
    filled = kLengthBytes;
  }
  if (bytes != filled) std::memcpy(block->data() + filled, data_.data() + copied(), bytes - filled);
  position_ += bytes;
  return block;
}

Incoming::Incoming(PointToPoint& link, unsigned peer, const Tag& tag, std::optional<std::size_t> length)
    : link_(link),
      peer_(peer),
      tag_(tag),
      header_(length ? 0 : kLengthBytes),
      total_(length),
      window_(std::clamp<std::size_t>(kAsked / std::max(link.size() - 1, 1U), 2, 16)) {}

void Incoming::post() {
  // Before the length is known only the first segment is sure to come.
  while (arriving_.size() < window_ && (total_ ? asked_ < *total_ : asked_ == 0)) {
    const std::size_t bytes = total_ ? std::min(kSegmentBytes, *total_ - asked_) : kSegmentBytes;
    // A worker that sends too much is told so by us, not by a transport that overruns: hence the whole segment.
    arriving_.push_back(link_.receive(peer_, tag_, kSegmentBytes));
    asked_ += bytes;
  }
}

std::optional<std::span<const std::byte>> Incoming::front() {
  if (arriving_.empty() || !arriving_.front()->done.load(std::memory_order_acquire)) return std::nullopt;
  const Memory& segment = *arriving_.front()->block;
  if (!checked_) check(segment);
  const std::size_t skip = taken_ < header_ ? header_ : 0;
  return std::span<const std::byte>(segment).subspan(skip);
}

// A segment must be as long as its place in the stream says; the first may tell how long the stream is.
void Incoming::check(const Memory& segment) {
  if (!total_ && segment.size() >= header_) {
    std::uint64_t length = 0;
    std::memcpy(&length, segment.data(), kLengthBytes);
    total_ = header_ + length;
    asked_ = std::min(kSegmentBytes, *total_);
  }
  const std::size_t expected = total_ ? std::min(kSegmentBytes, *total_ - taken_) : header_;
  if (segment.size() != expected) {
    throw Error(ErrorCode::disagreement, "Worker " + std::to_string(peer_) + " sent " + std::to_string(segment.size()) +
                                             " bytes where " + std::to_string(expected) +
                                             " were expected; all workers must call the same collectives, in the same "
                                             "order and with arrays of the same length.");
  }
  checked_ = true;
}

Block Incoming::pop() {
  Block block = std::move(arriving_.front()->block);
  arriving_.pop_front();
  taken_ += block->size();
  ++popped_;
  checked_ = false;
  return block;
}

std::size_t Incoming::arrived() const noexcept {
  const auto is_done = [](const Ticket& ticket) { return ticket->done.load(std::memory_order_acquire); };
  const auto first_missing = std::find_if_not(arriving_.begin(), arriving_.end(), is_done);
  return popped_ + static_cast<std::size_t>(first_missing - arriving_.begin());
}

bool Incoming::all_arrived() const noexcept {
  return total_ && asked_ == *total_ && arrived() == popped_ + arriving_.size();
}

}  // namespace peel::detail
