// How a subcommand gives up.
#pragma once

#include <stdexcept>

namespace peel::cli {

// A mistake that is the caller's or the system's (a missing file, say), not the library's: one sentence that says what
// to do. Exit code 1.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace peel::cli
