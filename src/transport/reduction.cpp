#include "transport/reduction.h"

#include <algorithm>
#include <cstring>

namespace peel::detail {
namespace {

// Up to here one step is faster than two: (W-1)(W-2)/W x bytes / bandwidth, the price of sending everything to
// everybody, is less than one latency.
constexpr std::size_t kOneStepBytes = 4096;
// Sums that wait until they may leave: more would only take memory.
constexpr std::size_t kSumsWaiting = 4;
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
      contributions_(link(), tag(0), slices(), Framing::bare),
      addends_(link().size()),
      sums_(link(), tag(1), two_steps_ ? segments_of(mine_.size(), Framing::bare) : 0),
      results_(two_steps_ ? link().size() : 0) {
  const unsigned workers = link().size();
  for (unsigned step = 1; step < workers; ++step) {
    const unsigned from = (link().rank() + workers - step) % workers;
    addends_[from] = std::make_unique<Incoming>(link(), from, tag(0), mine_.size());
    addends_[from]->post();
    if (!two_steps_) continue;
    results_[from] = std::make_unique<Incoming>(link(), from, tag(1), slice_of(from).size());
    results_[from]->post();
  }
  contributions_.advance(addends_);
}

std::vector<std::span<const std::byte>> Reduction::slices() const {
  std::vector<std::span<const std::byte>> all;
  for (unsigned worker = 0; worker < link().size(); ++worker) all.emplace_back(slice_of(worker));
  return all;
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
  bool moved = contributions_.advance(addends_);
  moved |= add_arrived();
  moved |= sums_.advance(results_);
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
    if (sums_.waiting() >= kSumsWaiting) return false;
    sums_.add(sum_);
  } else if (contributions_.copied() < end) {
    return false;  // the place still holds what some worker has to be sent
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
    if (result == nullptr) continue;
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
  return position_ == mine_.size() && contributions_.done() && sums_.done() && all_done(results_);
}

// Who did not send its addends holds up the results of all others, so it is the one to name.
Movement::Awaited Reduction::awaited() const {
  Awaited whom;
  whom.senders = slowest(addends_);
  if (whom.senders.empty()) whom.senders = slowest(results_);
  contributions_.awaited(whom.receivers);
  sums_.awaited(whom.receivers);
  return whom;
}

}  // namespace peel::detail
