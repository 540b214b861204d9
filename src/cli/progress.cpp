#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "cli/terminal.h"

namespace peel::cli {
namespace {

constexpr std::chrono::milliseconds kBetweenDrawings{100};
constexpr double kSecondsToJudge = 1;  // before that, nobody knows how long the rest takes

std::string show_time_left(double seconds) {
  const auto whole = static_cast<std::uint64_t>(std::ceil(std::min(seconds, 1e9)));
  if (whole < 60) return fmt::format("{} s left", whole);
  if (whole < 3600) return fmt::format("{}:{:02} min left", whole / 60, whole % 60);
  return fmt::format("{}:{:02} h left", whole / 3600, whole / 60 % 60);
}

}  // namespace

Progress::Progress(const FileOptions& options)
    : quiet_(options.quiet),
      shows_steps_(!options.quiet && is_terminal(stderr)),
      shows_summary_(options.verbose || (!options.quiet && isatty(STDERR_FILENO) != 0)) {}

Progress::~Progress() { clear(); }

void Progress::clear() {
  if (open_) {
    std::fputs("\r\033[K", stderr);
    std::fflush(stderr);
  }
  open_ = false;
}

void Progress::expect(double work) {
  work_ = work;
  done_ = 0;
  start_ = Clock::now();
}

void Progress::step(const std::string& text) {
  text_ = text;
  draw();
}

void Progress::advance(double work) { reach(done_ + work); }

void Progress::reach(double work) {
  done_ = std::min(work, work_);
  if (Clock::now() - drawn_ >= kBetweenDrawings) draw();
}

std::string Progress::standing() const {
  if (work_ <= 0) return "";
  const double share = done_ / work_;
  const double elapsed = std::chrono::duration<double>(Clock::now() - start_).count();
  std::string text = fmt::format("  {:.0f}%", std::floor(100 * share));
  if (share > 0 && elapsed >= kSecondsToJudge) text += ", " + show_time_left(elapsed * (1 - share) / share);
  return text;
}

void Progress::draw() {
  if (!shows_steps_) return;
  clear();
  const std::string standing = this->standing();
  // A line that reaches the last column would wrap, and could not be cleared.
  fmt::print(stderr, "{}{}", shortened(text_, kColumns - 1 - standing.size()), standing);
  std::fflush(stderr);
  open_ = true;
  drawn_ = Clock::now();
}

void Progress::summary(const std::string& text) {
  clear();
  if (shows_summary_) fmt::print(stderr, "{}\n", text);
}

void Progress::warning(const std::string& text) {
  clear();
  if (!quiet_) fmt::print(stderr, "peel: {}\n", text);
}

}  // namespace peel::cli
