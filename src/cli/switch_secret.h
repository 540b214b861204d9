// The secret that a switch and its workers share: of a file, or of the environment; never of the command line, where
// everybody sees it.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace peel::cli {

void add_secret_option(CLI::App& command, std::string& file);

// Throws Failure where there is none.
std::string read_secret(const std::string& file);

}  // namespace peel::cli
