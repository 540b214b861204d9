#include "cli/switch_log.h"

#ifdef PEEL_HAVE_SWITCH

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <deque>
#include <future>
#include <mutex>
#include <utility>

namespace peel::cli {
namespace {

constexpr std::size_t kMostLines = 1024;   // that wait, some 200 KB
constexpr std::chrono::seconds kPause{1};  // after a line that could not be written
constexpr std::chrono::seconds kFlush{1};  // for the last lines

std::string now() {
  timespec time{};
  clock_gettime(CLOCK_REALTIME, &time);
  std::tm parts{};
  gmtime_r(&time.tv_sec, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec, time.tv_nsec / 1'000'000);
}

std::string value_of(std::string_view text) {
  const std::string shown = printable(text);
  if (!shown.empty() && shown.find_first_of(" \"=\\") == std::string::npos) return shown;
  std::string quoted = "\"";
  for (const char c : shown) {
    if (c == '"') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

std::string line_of(const aggregator::Event& event) {
  std::string line = fmt::format("time={} event={}", now(), value_of(event.what));
  for (const auto& [key, value] : event.facts) line += fmt::format(" {}={}", key, value_of(value));
  return line + '\n';
}

// Waits for a reader that is slow. False where nobody will read it.
bool write_whole(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {  // somebody who has it too made it non-blocking
      pollfd ready{STDERR_FILENO, POLLOUT, 0};
      poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string shown;
  for (const char c : text) {
    if (c == '\\') {
      shown += "\\\\";
    } else if (c >= ' ' && c <= '~') {
      shown += c;
    } else {
      shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return shown;
}

struct EventLog::Queue {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::string> lines;
  std::uint64_t lost =
      0;              // since the log last told; until it has, all lines are lost, so that it tells in the right place
  bool over = false;  // no more lines come
  bool written = false;  // and nothing is left to do
};

EventLog::EventLog(const std::function<void()>& first) : queue_(std::make_shared<Queue>()) {
  std::promise<void> ready;
  std::future<void> started = ready.get_future();
  writer_ = std::thread([queue = queue_, &first, ready = std::move(ready)]() mutable {
    try {
      if (first) first();
      ready.set_value();
    } catch (...) {
      return ready.set_exception(std::current_exception());
    }
    write_lines(*queue);
  });
  try {
    started.get();
  } catch (...) {
    writer_.join();
    throw;
  }
}

EventLog::~EventLog() {
  std::unique_lock lock(queue_->mutex);
  queue_->over = true;
  queue_->changed.notify_all();
  const bool written = queue_->changed.wait_for(lock, kFlush, [this] { return queue_->written; });
  lock.unlock();
  if (written) {
    writer_.join();
  } else {
    writer_.detach();  // it waits for a reader that does not read, and ends with the process
  }
}

void EventLog::note(const aggregator::Event& event) {
  std::string line = line_of(event);
  const std::lock_guard lock(queue_->mutex);
  if (queue_->lost != 0 || queue_->lines.size() == kMostLines) {
    ++queue_->lost;
    return;
  }
  queue_->lines.push_back(std::move(line));
  queue_->changed.notify_all();
}

void EventLog::write_lines(Queue& queue) {
  std::unique_lock lock(queue.mutex);
  const auto written = [&](const std::string& line) {
    lock.unlock();
    const bool whole = write_whole(line);
    lock.lock();
    return whole;
  };
  while (true) {
    queue.changed.wait(lock, [&] { return !queue.lines.empty() || queue.lost != 0 || queue.over; });
    if (!queue.lines.empty()) {
      const std::string line = std::move(queue.lines.front());
      queue.lines.pop_front();
      if (!written(line)) ++queue.lost;
    } else if (queue.lost != 0) {
      const std::uint64_t lost = queue.lost;
      if (written(line_of({"lost", {{"lines", std::to_string(lost)}}}))) {
        queue.lost -= lost;
      } else if (queue.changed.wait_for(lock, kPause, [&] { return queue.over; })) {
        break;
      }
    } else {
      break;
    }
  }
  queue.written = true;
  queue.changed.notify_all();
}

}  // namespace peel::cli

#endif
