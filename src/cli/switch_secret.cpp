#include "cli/switch_secret.h"

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>

#include "cli/failure.h"

namespace peel::cli {

void add_secret_option(CLI::App& command, std::string& file) {
  command
      .add_option("--secret-file", file,
                  "Its first line is what lets workers into the switch (default: $PEEL_SWITCH_SECRET)")
      ->type_name("FILE");
}

std::string read_secret(const std::string& file) {
  std::string secret;
  if (file.empty()) {
    if (const char* set = std::getenv("PEEL_SWITCH_SECRET")) secret = set;
  } else {
    std::ifstream in(file);
    if (!in) throw Failure(fmt::format("cannot read {}; write the secret of the switch there", file));
    std::getline(in, secret);
  }
  if (secret.empty()) {
    throw Failure("a switch needs a secret; name a file with --secret-file, or set PEEL_SWITCH_SECRET");
  }
  return secret;
}

}  // namespace peel::cli
