// Messages in files and pipes: one serialised message (docs/format.md) and nothing behind it.
#pragma once

#include <cstdint>
#include <string>

#include "cli/files.h"
#include "peel/message.h"
#include "peel/plan.h"

namespace peel::cli {

Parsed load_message(const std::string& path);  // throws Failure that names the file

// Returns how many bytes the file has.
std::uint64_t save_message(const std::string& path, OutputOptions options, const Plan& plan, const Message& message);

}  // namespace peel::cli
