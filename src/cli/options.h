// Options that several subcommands share, so that they read and behave alike.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "cli/files.h"
#include "peel/codec.h"

namespace peel::cli {

inline constexpr const char* kSuffix = ".peel";

// -o, -c, -f, -q and -v, as in zstd.
void add_file_options(CLI::App& command, FileOptions& options);

void check_one_pipe(const std::vector<std::string>& inputs);  // standard input gives only once

// What each input's output is called: -o for a lone input, else what `derive` makes of its name; a pipe stays a pipe.
std::vector<std::string> output_names(const std::vector<std::string>& inputs, const FileOptions& options,
                                      const std::function<std::string(const std::string&)>& derive);

// --threads and --backend.
void add_execution_options(CLI::App& command, Execution& execution);

// An option whose text `parse` turns into *target; what it throws is a mistake in usage.
template <typename T, typename Parse>
CLI::Option* add_parsed(CLI::App& command, const std::string& names, T& target, Parse parse,
                        const std::string& description) {
  return command
      .add_option_function<std::string>(
          names, [&target, parse](const std::string& text) { target = parse(text); }, description)
      ->type_name("");
}

}  // namespace peel::cli
