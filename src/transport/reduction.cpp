#include "transport/reduction.h"

#include <algorithm>
#include <cstring>

namespace peel::detail {
namespace {

// Up to here one step is faster than two: (W-1)(W-2)/W x bytes / bandwidth, the price of sending everything to
// everybody, is less than one latency.
constexpr std::size_t kOneStepBytes = 4096;
// Slices begin on cache lines, so that no two workers' slices share one.
constexpr std::size_t kLine = 64;

bool needs_two_steps(std::size_t bytes, unsigned workers) { return workers > 2 && bytes > kOneStepBytes; }

}  // namespace

Reduction::Reduction(std::shared_ptr<PointToPoint> over, Collective& what, std::uint32_t channel,
                     std::chrono::milliseconds timeout)
    : Movement(std::move(over), what, channel, timeout),
      combine_(combine_of(what.kind, what.type)),
      two_steps_(needs_two_steps(what.data.size(), link().size())),
      mine_(slice_of(link().rank())),
      addends_(link().size()),
      sums_(link(), tag(1)) {
  const unsigned workers = link().size();
  for (unsigned step = 1; step < workers; ++step) {
    const unsigned from = (link().rank() + workers - step) % workers;
    addends_[from] = std::make_unique<Incoming>(link(), from, tag(0), mine_.size());
    addends_[from]->post();
    if (!two_steps_) continue;
    results_.push_back(std::make_unique<Incoming>(link(), from, tag(1), slice_of(from).size()));
    results_.back()->post();
  }
  for (unsigned step = 1; step < workers; ++step) {
    const unsigned to = (link().rank() + step) % workers;
    contributions_.emplace_back(link(), to, tag(0), slice_of(to), Framing::bare);
  }
  for (Outgoing& contribution : contributions_) contribution.advance();
}

std::span<std::byte> Reduction::slice_of(unsigned worker) const {
  const std::span<std::byte> data = what().data;
  if (!two_steps_) return data;
  const std::size_t lines = (data.size() + kLine - 1) / kLine;
  const std::size_t share = (lines + link().size() - 1) / link().size() * kLine;
  const std::size_t begin = std::min(worker * share, data.size());
  return data.subspan(begin, std::min(share, data.size() - begin));
}

bool Reduction::advance() {
  bool moved = false;
  for (Outgoing& contribution : contributions_) moved |= contribution.advance();
  moved |= sums_.retire();
  moved |= add_arrived();
  moved |= store_results();
  return moved;
}

bool Reduction::add_arrived() {
  bool moved = false;
  while (position_ < mine_.size()) {
    const bool more = next_ < link().size() ? add_from(next_) : finish_segment();
    if (!more) break;
    moved = true;
  }
  return moved;
}

// False if the addend has not arrived.
bool Reduction::add_from(unsigned worker) {
  const std::size_t bytes = std::min(kSegmentBytes, mine_.size() - position_);
  if (worker == link().rank()) {
    const std::span<const std::byte> own = mine_.subspan(position_, bytes);
    if (next_ == 0) {
      sum_ = link().take(bytes);
      std::memcpy(sum_->data(), own.data(), bytes);
    } else {
      combine_(sum_->data(), own.data(), bytes);
    }
  } else {
    Incoming& addend = *addends_[worker];
    if (!addend.front()) return false;
    const Block block = addend.pop();
    addend.post();
    if (next_ == 0) {
      sum_ = block;  // nobody else has it, so it can hold the sum
    } else {
      combine_(sum_->data(), block->data(), bytes);
    }
  }
  ++next_;
  return true;
}

// Stores a segment's sum and sends it on; false if its place is not free yet.
bool Reduction::finish_segment() {
  const std::size_t end = position_ + sum_->size();
  if (two_steps_) {
    if (!sums_.has_room()) return false;
    sums_.send(sum_);
  } else {
    // The place still holds what some worker has to be sent.
    for (const Outgoing& contribution : contributions_) {
      if (contribution.copied() < end) return false;
    }
  }
  std::memcpy(mine_.data() + position_, sum_->data(), sum_->size());
  sum_.reset();
  position_ = end;
  next_ = 0;
  return true;
}

// A result cannot arrive before our contribution to it was sent, so its place is free.
bool Reduction::store_results() {
  bool moved = false;
  for (const std::unique_ptr<Incoming>& result : results_) {
    while (const auto segment = result->front()) {
      const std::span<std::byte> slice = slice_of(result->peer());
      std::memcpy(slice.data() + result->position(), segment->data(), segment->size());
      result->pop();
      result->post();
      moved = true;
    }
  }
  return moved;
}

bool Reduction::complete() const {
  return position_ == mine_.size() && sums_.done() &&
         std::all_of(contributions_.begin(), contributions_.end(), [](const Outgoing& out) { return out.done(); }) &&
         std::all_of(results_.begin(), results_.end(), [](const auto& in) { return in->done(); });
}

// Who did not send its addends holds up all others, so it is the one to name.
Movement::Awaited Reduction::awaited() const {
  Awaited whom;
  if (position_ < mine_.size()) {
    for (unsigned worker = next_; worker < link().size(); ++worker) {
      if (addends_[worker] && !addends_[worker]->front()) whom.senders.push_back(worker);
    }
  }
  if (whom.senders.empty()) {
    for (const std::unique_ptr<Incoming>& result : results_) {
      if (!result->done()) whom.senders.push_back(result->peer());
    }
  }
  for (const Outgoing& contribution : contributions_) contribution.awaited(whom.receivers);
  sums_.awaited(whom.receivers);
  return whom;
}

}  // namespace peel::detail
