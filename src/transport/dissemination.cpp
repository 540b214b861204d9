#include "transport/dissemination.h"

#include <cstring>
#include <limits>

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
    : Movement(std::move(over), what, channel, timeout), sent_(std::numeric_limits<std::size_t>::max()) {
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
  sent_.add(to, link().send(to, tag(0), std::move(block)));
}

bool Dissemination::advance() {
  bool moved = sent_.retire();
  while (distance_ < link().size() && arriving_->front()) {
    const Block block = arriving_->pop();
    combine_of(Collective::Kind::bit_or, what().type)(what().data.data(), block->data(), block->size());
    distance_ *= 2;
    begin_round();
    moved = true;
  }
  return moved;
}

Movement::Awaited Dissemination::awaited() const {
  Awaited whom;
  whom.indirect = true;
  if (distance_ < link().size()) whom.senders.push_back(arriving_->peer());
  sent_.awaited(whom.receivers);
  return whom;
}

}  // namespace peel::detail
