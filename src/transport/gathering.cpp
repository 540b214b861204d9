#include "transport/gathering.h"

#include <algorithm>
#include <cstring>

namespace peel::detail {

Gathering::Gathering(std::shared_ptr<PointToPoint> over, Collective& what, std::uint32_t channel,
                     std::chrono::milliseconds timeout)
    : Movement(std::move(over), what, channel, timeout),
      shared_(what.send.front(), Framing::with_length),
      broadcast_(link(), tag(0)) {
  const unsigned workers = link().size();
  what.received.resize(workers);
  for (unsigned step = 1; step < workers; ++step) {
    const unsigned from = (link().rank() + workers - step) % workers;
    incoming_.push_back(std::make_unique<Incoming>(link(), from, tag(0), std::nullopt));
    incoming_.back()->post();
  }
  if (what.kind == Collective::Kind::all_gather) {
    send_to_all();
    return;
  }
  for (unsigned step = 1; step < workers; ++step) {
    const unsigned to = (link().rank() + step) % workers;
    outgoing_.emplace_back(link(), to, tag(0), what.send[to], Framing::with_length);
  }
  for (Outgoing& out : outgoing_) out.advance();
}

bool Gathering::send_to_all() {
  bool moved = broadcast_.retire();
  while (!shared_.exhausted() && broadcast_.has_room()) {
    broadcast_.send(shared_.next(link()));
    moved = true;
  }
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
  bool moved = false;
  for (Outgoing& out : outgoing_) moved |= out.advance();
  if (what().kind == Collective::Kind::all_gather) moved |= send_to_all();
  for (const std::unique_ptr<Incoming>& from : incoming_) moved |= store(*from);
  return moved;
}

bool Gathering::complete() const {
  const bool sent = what().kind == Collective::Kind::all_gather ? shared_.exhausted() && broadcast_.done() : true;
  return sent && std::all_of(outgoing_.begin(), outgoing_.end(), [](const Outgoing& out) { return out.done(); }) &&
         std::all_of(incoming_.begin(), incoming_.end(), [](const auto& in) { return in->done(); });
}

Movement::Awaited Gathering::awaited() const {
  Awaited whom;
  for (const std::unique_ptr<Incoming>& from : incoming_) {
    if (!from->done()) whom.senders.push_back(from->peer());
  }
  for (const Outgoing& out : outgoing_) out.awaited(whom.receivers);
  broadcast_.awaited(whom.receivers);
  return whom;
}

}  // namespace peel::detail
