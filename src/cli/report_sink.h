// Where a benchmark's results go: rows of a table for people, or JSON lines for programs.
#pragma once

#include <optional>
#include <string>

#include "cli/files.h"
#include "cli/json.h"

namespace peel::cli {

// Rows or lines appear as soon as they are known; a file, when it is complete.
class ReportSink {
 public:
  // `json` is a path, or - for standard output; empty: a table.
  ReportSink(const std::string& json, const std::string& heading);

  void add(const std::string& row, const Json& report);
  void finish();

 private:
  bool is_json_;
  std::optional<Output> file_;
};

}  // namespace peel::cli
