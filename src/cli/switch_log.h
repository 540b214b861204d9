// The log of a switch: one line of logfmt for each event, on standard error.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "switch/core/journal.h"

namespace peel::cli {

// Text of the network as it may be shown: what is not printable ASCII is written as \x1b, and \ as \\.
std::string printable(std::string_view text);

// Whoever reads the log may be slow, stop or end, and must not hold up the switch: lines wait in a queue for a thread
// that writes them. Lines for which the queue has no room are lost, and the log says how many.
class EventLog {
 public:
  // `first` is what the thread does before anything else; what it throws comes out here.
  explicit EventLog(const std::function<void()>& first);
  // Waits a second at most for lines that are not written yet.
  ~EventLog();
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  // time=2026-11-16T18:00:00.123Z event=join job="run 7" worker=2
  void note(const aggregator::Event& event);

 private:
  struct Queue;
  static void write_lines(Queue& queue);

  std::shared_ptr<Queue> queue_;  // the thread's too, which may outlive this if its last line cannot be written
  std::thread writer_;
};

}  // namespace peel::cli
