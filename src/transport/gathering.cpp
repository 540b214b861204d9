#include "transport/gathering.h"

#include <cstring>

namespace peel::detail {
namespace {

// Segments cut before they may leave: more would only take memory.
constexpr std::size_t kCutAhead = 4;

}  // namespace

Gathering::Gathering(std::shared_ptr<PointToPoint> over, Collective& what, std::uint32_t channel,
                     std::chrono::milliseconds timeout)
    : Movement(std::move(over), what, channel, timeout),
      shared_(what.send.front(), Framing::with_length),
      arriving_(link().size()) {
  const unsigned workers = link().size();
  what.received.resize(workers);
  for (unsigned step = 1; step < workers; ++step) {
    const unsigned from = (link().rank() + workers - step) % workers;
    arriving_[from] = std::make_unique<Incoming>(link(), from, tag(0), std::nullopt);
    arriving_[from]->post();
  }
  if (workers == 1) return;
  if (what.kind == Collective::Kind::all_gather) {
    const std::size_t rounds = segments_of(what.send.front().size(), Framing::with_length);
    broadcast_ = std::make_unique<Broadcast>(link(), tag(0), rounds);
  } else {
    scatter_ = std::make_unique<Scatter>(link(), tag(0), what.send, Framing::with_length);
  }
  send();
}

bool Gathering::send() {
  if (scatter_ != nullptr) return scatter_->advance(arriving_);
  if (broadcast_ == nullptr) return false;
  bool moved = false;
  do {
    while (!shared_.exhausted() && broadcast_->waiting() < kCutAhead) broadcast_->add(shared_.next(link()));
  } while (broadcast_->advance(arriving_) && (moved = true));
  return moved;
}

bool Gathering::store(Incoming& from) {
  bool moved = false;
  while (const auto segment = from.front()) {
    Memory& received = what().received[from.peer()];
    if (from.position() == 0) received.resize(from.length());
    if (!segment->empty()) std::memcpy(received.data() + from.position(), segment->data(), segment->size());
    from.pop();
    from.post();
    moved = true;
  }
  return moved;
}

bool Gathering::advance() {
  bool moved = send();
  for (const std::unique_ptr<Incoming>& from : arriving_) {
    if (from != nullptr) moved |= store(*from);
  }
  return moved;
}

bool Gathering::complete() const {
  const bool sent = (scatter_ == nullptr || scatter_->done()) && (broadcast_ == nullptr || broadcast_->done());
  return sent && all_done(arriving_);
}

Movement::Awaited Gathering::awaited() const {
  Awaited whom;
  whom.senders = slowest(arriving_);
  if (scatter_ != nullptr) scatter_->awaited(whom.receivers);
  if (broadcast_ != nullptr) broadcast_->awaited(whom.receivers);
  return whom;
}

}  // namespace peel::detail
