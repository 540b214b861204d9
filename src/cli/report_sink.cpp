#include "cli/report_sink.h"

#include <cstdio>
#include <span>

namespace peel::cli {
namespace {

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);  // main() checks the stream before it ends
  std::fflush(stdout);
}

}  // namespace

ReportSink::ReportSink(const std::string& json, const std::string& heading) : is_json_(!json.empty()) {
  if (is_json_ && json != kPipe) file_.emplace(json, json_output());
  if (!is_json_) print(heading);
}

void ReportSink::add(const std::string& row, const Json& report) {
  if (!is_json_) {
    print(row);
    return;
  }
  const std::string line = report.dump() + "\n";
  if (file_) {
    file_->write(std::as_bytes(std::span(line)));
  } else {
    print(line);
  }
}

void ReportSink::finish() {
  if (file_) file_->commit();
}

}  // namespace peel::cli
