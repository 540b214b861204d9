#include "transport/dissemination.h"

#include <algorithm>
#include <cstring>

namespace peel::detail {
namespace {

constexpr unsigned kManyWorkers = 8;
constexpr std::size_t kFewBytes = 4096;

}  // namespace

bool Dissemination::suits(const Collective& what, unsigned workers) noexcept {
  return what.kind == Collective::Kind::bit_or && workers > kManyWorkers && !what.data.empty() &&
         what.data.size() <= kFewBytes;
}

Dissemination::Dissemination(std::shared_ptr<PointToPoint> over, Collective& what, std::uint32_t channel,
                             std::chrono::milliseconds timeout)
    : Movement(std::move(over), what, channel, timeout) {
  begin_round();
}

// The peer is another one in each round, so one tag serves all.
void Dissemination::begin_round() {
  const unsigned workers = link().size();
  if (distance_ >= workers) return;
  const unsigned from = (link().rank() + workers - distance_) % workers;
  const unsigned to = (link().rank() + distance_) % workers;
  arriving_.emplace(link(), from, tag(0), what().data.size());
  arriving_->post();
  Block block = link().take(what().data.size());
  std::memcpy(block->data(), what().data.data(), block->size());
  sent_.push_back(link().send(to, tag(0), std::move(block)));
}

bool Dissemination::advance() {
  bool moved = false;
  while (distance_ < link().size() && arriving_->front()) {
    const Block block = arriving_->pop();
    combine_of(Collective::Kind::bit_or, what().type)(what().data.data(), block->data(), block->size());
    distance_ *= 2;
    begin_round();
    moved = true;
  }
  return moved;
}

bool Dissemination::complete() const {
  return distance_ >= link().size() && std::all_of(sent_.begin(), sent_.end(), [](const Ticket& ticket) {
           return ticket->done.load(std::memory_order_acquire);
         });
}

Movement::Awaited Dissemination::awaited() const {
  Awaited whom;
  if (distance_ < link().size()) whom.senders.push_back(arriving_->peer());
  for (std::size_t round = 0; round < sent_.size(); ++round) {
    if (!sent_[round]->done) whom.receivers.push_back((link().rank() + (1U << round)) % link().size());
  }
  return whom;
}

}  // namespace peel::detail
