#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace peel::cli {

Progress::Progress(const FileOptions& options)
    : quiet_(options.quiet),
      shows_steps_(!options.quiet && isatty(STDERR_FILENO) != 0),
      shows_summary_(shows_steps_ || options.verbose) {}

Progress::~Progress() { clear(); }

void Progress::clear() {
  if (open_) std::fputs("\r\033[K", stderr);
  open_ = false;
}

void Progress::step(const std::string& text) {
  if (!shows_steps_) return;
  clear();
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
  open_ = true;
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
