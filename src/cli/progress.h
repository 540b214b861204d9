// One line on standard error: what is being done while it is done, then a summary. Both are for people, so by default
// they appear only on a terminal.
#pragma once

#include <string>

#include "cli/options.h"

namespace peel::cli {

class Progress {
 public:
  explicit Progress(const FileOptions& options);
  ~Progress();  // leaves no half-finished line behind an error
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void step(const std::string& text);     // replaces the last step
  void summary(const std::string& text);  // stays
  void warning(const std::string& text);  // stays, terminal or not, unless quiet

 private:
  void clear();

  bool quiet_ = false;
  bool shows_steps_ = false;
  bool shows_summary_ = false;
  bool open_ = false;
};

}  // namespace peel::cli
