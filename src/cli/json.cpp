#include "cli/json.h"

#include <cstdio>
#include <span>

#include "cli/files.h"

namespace peel::cli {

void write_json_lines(const std::string& path, const std::vector<Json>& reports) {
  std::string lines;
  for (const Json& report : reports) lines += report.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  if (path == kPipe) {
    std::fwrite(lines.data(), 1, lines.size(), stdout);  // main() checks the stream before it ends
    return;
  }
  Output output(path, {});
  output.write(std::as_bytes(std::span(lines)));
  output.commit();
}

}  // namespace peel::cli
