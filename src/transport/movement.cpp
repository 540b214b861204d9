#include "transport/movement.h"

#include <algorithm>

namespace peel::detail {
namespace {

std::string list(std::vector<unsigned> workers) {
  std::sort(workers.begin(), workers.end());
  workers.erase(std::unique(workers.begin(), workers.end()), workers.end());
  std::string text = workers.size() == 1 ? "Worker " : "Workers ";
  for (std::size_t i = 0; i < workers.size(); ++i) {
    if (i != 0) text += i + 1 == workers.size() ? " and " : ", ";
    text += std::to_string(workers[i]);
  }
  return text;
}

}  // namespace

Movement::Movement(std::shared_ptr<PointToPoint> link, Collective& what, std::uint32_t channel,
                   std::chrono::milliseconds timeout)
    : link_(std::move(link)), what_(what), channel_(channel), patience_(timeout) {}

Movement::~Movement() {
  if (complete_) return;
  give_up({ErrorCode::transport, "A collective (" + std::string(name(what_.kind)) + ") was given up on worker " +
                                     std::to_string(link_->rank()) +
                                     " before it was complete; wait until test() is true."});
}

void Movement::give_up(const Error& why) noexcept {
  if (link_->cause()) return;
  link_->break_down(why);
  link_->roll().give_up(*link_, why);
}

bool Movement::test() {
  if (complete_) return true;
  link_->refuse_wrong_thread();
  link_->refuse_if_broken();
  try {
    link_->progress();
    const bool moved = advance();
    complete_ = complete();
    if (!complete_) wait(moved);
  } catch (const Error& error) {
    give_up(error);
    throw;
  }
  return complete_;
}

void Movement::wait(bool moved) {
  const bool lasts = patience_.lasts(moved);
  if (link_->roll().due()) link_->roll().listen(*link_, awaited().first());
  if (moved) answers_.reset();
  if (answers_ == nullptr && patience_.half_over()) answers_ = link_->roll().call(*link_);
  if (!lasts) throw Error(ErrorCode::timeout, complaint());
}

std::string Movement::complaint() const {
  const Awaited whom = awaited();
  const std::vector<unsigned> gone = link_->roll().silent(*answers_, link_->rank(), whom.first());
  const std::string where = " for " + patience_.waited() + " in collective " + std::to_string(what_.sequence) + " (" +
                            std::string(name(what_.kind)) + ") of channel " + std::to_string(channel_);
  if (gone.empty()) {
    return "Nothing moved" + where +
           ", though all workers answer: they wait for each other. Let all of them call the same collectives, in the "
           "same order and with arrays of the same length, and make a new communicator.";
  }
  return list(gone) + (whom.senders.empty() ? " took" : " sent") + " nothing" + where +
         (gone.size() == 1 ? ", and does not answer. See whether it still runs"
                           : ", and do not answer; some may only be slow. See which of them still run") +
         ", give slow workers a longer time-out, and make a new communicator.";
}

}  // namespace peel::detail
