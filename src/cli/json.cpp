#include "cli/json.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <span>

namespace peel::cli {

void add_json_option(CLI::App& command, std::string& path) {
  command
      .add_option_function<std::string>(
          "--json", [&path](const std::string& file) { path = file.empty() ? kPipe : file; },
          "Write JSON instead of text, to FILE or to standard output")
      ->expected(0, 1)
      ->type_name("[FILE]");
}

OutputOptions json_output() { return {.advice = "name another file after --json, or - for standard output"}; }

void write_json_lines(const std::string& path, const std::vector<Json>& reports) {
  std::string lines;
  for (const Json& report : reports) lines += report.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  if (path == kPipe) {
    std::fwrite(lines.data(), 1, lines.size(), stdout);  // main() checks the stream before it ends
    return;
  }
  Output output(path, json_output());
  output.write(std::as_bytes(std::span(lines)));
  output.commit();
}

}  // namespace peel::cli
