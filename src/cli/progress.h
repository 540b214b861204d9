// One line on standard error: what is being done, how much of it is done and how long the rest takes; then a summary.
// All are for people, so by default they appear only on a terminal.
#pragma once

#include <chrono>
#include <string>

#include "cli/files.h"

namespace peel::cli {

// For one thread at a time.
class Progress {
 public:
  explicit Progress(const FileOptions& options = {});
  ~Progress();  // leaves no half-finished line behind an error
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void expect(double work);            // all that there is to do, in any unit; 0: nobody knows
  void step(const std::string& text);  // replaces the last step
  void advance(double work);           // so much more is done
  void reach(double work);             // so much is done by now
  void clear();                        // makes room for what is printed on the same terminal

  // Advances by `work` for every byte that is moved.
  [[nodiscard]] Moved moved(double work = 1) {
    return [this, work](std::uint64_t bytes) { advance(work * static_cast<double>(bytes)); };
  }

  void summary(const std::string& text);  // stays
  void warning(const std::string& text);  // stays, terminal or not, unless quiet

 private:
  using Clock = std::chrono::steady_clock;

  void draw();
  [[nodiscard]] std::string standing() const;

  bool quiet_ = false;
  bool shows_steps_ = false;
  bool shows_summary_ = false;
  bool open_ = false;
  std::string text_;
  double work_ = 0;
  double done_ = 0;
  Clock::time_point start_ = Clock::now();
  Clock::time_point drawn_;
};

}  // namespace peel::cli
