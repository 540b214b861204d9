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
  link_->break_down({ErrorCode::transport, "a collective (" + std::string(name(what_.kind)) +
                                               ") was given up before it was complete; wait until test() is true."});
}

bool Movement::test() {
  if (complete_) return true;
  link_->refuse_wrong_thread();
  link_->refuse_if_broken();
  try {
    link_->progress();
    const bool moved = advance();
    complete_ = complete();
    if (!complete_ && !patience_.lasts(moved)) throw Error(ErrorCode::timeout, complaint());
  } catch (const Error& error) {
    link_->break_down(error);
    throw;
  }
  return complete_;
}

std::string Movement::complaint() const {
  const Awaited whom = awaited();
  const bool sends = !whom.senders.empty();
  return list(sends ? whom.senders : whom.receivers) + (whom.indirect ? ", or one that it waits for," : "") +
         (sends ? " sent" : " took") + " nothing for " + patience_.waited() + " in collective " +
         std::to_string(what_.sequence) + " (" + std::string(name(what_.kind)) + ") of channel " +
         std::to_string(channel_) +
         ". See whether it still runs, give slow workers a longer time-out, and make a new communicator.";
}

}  // namespace peel::detail
