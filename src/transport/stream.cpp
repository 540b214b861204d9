#include "transport/stream.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace peel::detail {
namespace {

// Enough to fill a link while one segment is added and another waits for its receiver to ask for it.
constexpr std::size_t kWindow = 4;
// With many workers all of them together fill the link; their windows then share this much memory.
constexpr std::size_t kBytesUnderWay = std::size_t{8} << 20;

}  // namespace

std::size_t window_for(std::size_t peers) noexcept {
  return std::clamp<std::size_t>(kBytesUnderWay / kSegmentBytes / std::max<std::size_t>(peers, 1), 1, kWindow);
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

bool Departures::retire() {
  return std::erase_if(under_way_, [](const Departure& departure) {
           return departure.ticket->done.load(std::memory_order_acquire);
         }) != 0;
}

void Departures::awaited(std::vector<unsigned>& workers) const {
  for (const Departure& departure : under_way_) workers.push_back(departure.peer);
}

Outgoing::Outgoing(PointToPoint& link, unsigned peer, const Tag& tag, std::span<const std::byte> data, Framing framing)
    : link_(link), peer_(peer), tag_(tag), cutter_(data, framing), departures_(window_for(link.size() - 1)) {}

bool Outgoing::advance() {
  bool moved = departures_.retire();
  while (!cutter_.exhausted() && departures_.has_room()) {
    departures_.add(peer_, link_.send(peer_, tag_, cutter_.next(link_)));
    moved = true;
  }
  return moved;
}

Broadcast::Broadcast(PointToPoint& link, const Tag& tag)
    : link_(link), tag_(tag), departures_((link.size() - 1) * window_for(link.size() - 1)) {}

void Broadcast::send(const Block& block) {
  // Everybody begins with another peer, so that no worker is sent to by all at once.
  for (unsigned step = 1; step < link_.size(); ++step) {
    const unsigned peer = (link_.rank() + step) % link_.size();
    departures_.add(peer, link_.send(peer, tag_, block));
  }
}

Incoming::Incoming(PointToPoint& link, unsigned peer, const Tag& tag, std::optional<std::size_t> length)
    : link_(link),
      peer_(peer),
      tag_(tag),
      header_(length ? 0 : kLengthBytes),
      total_(length),
      window_(window_for(link.size() - 1)) {}

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
  checked_ = false;
  return block;
}

}  // namespace peel::detail
