// The secrets that a switch and its workers share: of a file, or of the environment; never of the command line, where
// everybody sees them.
#pragma once

#include <string>

#include "switch/core/secrets.h"

namespace CLI {
class App;
}  // namespace CLI

namespace peel::cli {

void add_secret_option(CLI::App& command, std::string& file);

// What a worker takes: the first line of the file. Throws Failure where there is none, and peel::Error for one that can
// be guessed.
std::string read_secret(const std::string& file);

// What a switch takes: every line of `secret_file`, for all jobs; or what `tenants_file` says, if it has a name.
aggregator::Secrets read_secrets(const std::string& secret_file, const std::string& tenants_file);

// Throws Failure for a pipe and the like, which a switch that serves cannot wait for. One that is missing is
// read_secrets' to refuse.
void refuse_unless_plain(const std::string& file);

}  // namespace peel::cli
