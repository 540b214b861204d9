#include "transport/rotation.h"

#include <algorithm>

namespace peel::detail {
namespace {

// How far a worker runs ahead of what it has received: some milliseconds of a 1 gbit link, which is how late a process
// may be woken.
constexpr std::size_t kAhead = std::size_t{1} << 20;
// Where a worker receives nothing it could run ahead without end; this many segments at most wait to leave.
constexpr std::size_t kUnderWay = 64;

std::size_t most_rounds(const std::vector<std::span<const std::byte>>& data, unsigned rank, Framing framing) {
  std::size_t most = 0;
  for (unsigned worker = 0; worker < data.size(); ++worker) {
    if (worker != rank) most = std::max(most, segments_of(data[worker].size(), framing));
  }
  return most;
}

}  // namespace

bool all_done(const Arriving& arriving) noexcept {
  return std::all_of(arriving.begin(), arriving.end(), [](const auto& in) { return in == nullptr || in->done(); });
}

std::vector<unsigned> slowest(const Arriving& arriving) {
  std::vector<unsigned> workers;
  std::size_t least = static_cast<std::size_t>(-1);
  for (const std::unique_ptr<Incoming>& in : arriving) {
    if (in == nullptr || in->all_arrived()) continue;
    const std::size_t arrived = in->arrived();
    if (arrived < least) workers.clear();
    if (arrived <= least) workers.push_back(in->peer());
    least = std::min(least, arrived);
  }
  return workers;
}

bool Rotation::advance(const Arriving& arriving) {
  bool moved = retire();
  while (round_ < rounds_ && ready(round_) && under_way_.size() < kUnderWay && may_run_ahead(arriving)) {
    send_step();
    moved = true;
  }
  return moved;
}

bool Rotation::retire() {
  return std::erase_if(under_way_, [](const Departure& departure) {
           return departure.ticket->done.load(std::memory_order_acquire);
         }) != 0;
}

bool Rotation::may_run_ahead(const Arriving& arriving) {
  const unsigned others = link_.size() - 1;
  while (ahead_ >= kAhead) {
    const unsigned step = static_cast<unsigned>(matched_ % others) + 1;
    const unsigned from = (link_.rank() + link_.size() - step) % link_.size();
    const Incoming& in = *arriving[from];
    if (in.arrived() <= matched_ / others && !in.all_arrived()) return false;
    ahead_ -= sent_.front();
    sent_.pop_front();
    ++matched_;
  }
  return true;
}

void Rotation::send_step() {
  const unsigned peer = (link_.rank() + step_) % link_.size();
  std::size_t bytes = 0;
  if (exists(round_, peer)) {
    Block block = segment(round_, peer);
    bytes = block->size();
    under_way_.push_back({peer, link_.send(peer, tag_, std::move(block))});
  }
  ahead_ += bytes;
  sent_.push_back(bytes);
  if (++step_ == link_.size()) {
    step_ = 1;
    ++round_;
  }
}

void Rotation::awaited(std::vector<unsigned>& workers) const {
  for (const Departure& departure : under_way_) workers.push_back(departure.peer);
}

Scatter::Scatter(PointToPoint& link, const Tag& tag, const std::vector<std::span<const std::byte>>& data,
                 Framing framing)
    : Rotation(link, tag, most_rounds(data, link.rank(), framing)) {
  cutters_.reserve(data.size());
  for (const std::span<const std::byte> part : data) cutters_.emplace_back(part, framing);
}

bool Scatter::exists(std::size_t /*round*/, unsigned peer) const { return !cutters_[peer].exhausted(); }

std::size_t Scatter::copied() const noexcept {
  std::size_t least = static_cast<std::size_t>(-1);
  for (unsigned worker = 0; worker < cutters_.size(); ++worker) {
    if (worker != link().rank()) least = std::min(least, cutters_[worker].copied());
  }
  return least;
}

Block Broadcast::segment(std::size_t round, unsigned peer) {
  Block block = blocks_[round - first_];
  const unsigned last = (link().rank() + link().size() - 1) % link().size();
  if (peer == last) {
    blocks_.pop_front();
    ++first_;
  }
  return block;
}

}  // namespace peel::detail
