// The address of a switch, as an option gives it.
#pragma once

#include <CLI/Error.hpp>
#include <string>

#include "peel/error.h"
#include "switch/net/datagrams.h"

namespace peel::cli {

// Throws CLI::ValidationError for one that is none: a mistake in usage.
inline detail::Address switch_address(const std::string& text) {
  try {
    return detail::resolve(text);
  } catch (const Error& error) {
    throw CLI::ValidationError(error.what());
  }
}

}  // namespace peel::cli
