#include "cli/options.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace peel::cli {
namespace {

Backend parse_backend(std::string_view text) {
  for (const Backend backend : {Backend::automatic, Backend::reference, Backend::cpu}) {
    if (text == name(backend) || (backend == Backend::automatic && text == "auto")) return backend;
  }
  throw CLI::ValidationError("'" + std::string(text) + "' is not a backend; use auto, reference or cpu");
}

}  // namespace

void add_file_options(CLI::App& command, FileOptions& options) {
  CLI::Option* output = command.add_option("-o,--output", options.output, "Write this file, or standard output for -");
  output->type_name("FILE");
  command
      .add_flag_callback(
          "-c,--stdout", [&options] { options.output = kPipe; }, "Write standard output")
      ->excludes(output);
  command.add_flag("-f,--force", options.force, "Overwrite files, and write to a terminal");
  CLI::Option* quiet = command.add_flag("-q,--quiet", options.quiet, "Say nothing but errors");
  command.add_flag("-v,--verbose", options.verbose, "Print the summary even if standard error is no terminal")
      ->excludes(quiet);
}

void check_one_pipe(const std::vector<std::string>& inputs) {
  if (std::count(inputs.begin(), inputs.end(), kPipe) > 1) {
    throw CLI::ValidationError("standard input can be read only once");
  }
}

std::vector<std::string> output_names(const std::vector<std::string>& inputs, const FileOptions& options,
                                      const std::function<std::string(const std::string&)>& derive) {
  if (!options.output.empty() && inputs.size() > 1) {
    throw CLI::ValidationError("several inputs cannot go into one output; leave out -o and -c, or take them in turn");
  }
  check_one_pipe(inputs);
  std::vector<std::string> names;
  for (const std::string& input : inputs) {
    const bool piped = input == kPipe;
    if (piped && options.output.empty() && inputs.size() > 1) {
      throw CLI::ValidationError("standard input has no name to derive an output from; name a file");
    }
    names.push_back(!options.output.empty() ? options.output : piped ? kPipe : derive(input));
  }
  return names;
}

void add_execution_options(CLI::App& command, Execution& execution) {
  command.add_option("--threads", execution.threads, "Threads; 0 for all cores")->capture_default_str()->type_name("T");
  add_parsed(command, "--backend", execution.backend, parse_backend, "Which implementation does the work [auto]")
      ->type_name("{auto,reference,cpu}");
}

}  // namespace peel::cli
