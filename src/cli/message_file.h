// Messages in files and pipes: one serialised message (docs/format.md) and nothing behind it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cli/files.h"
#include "peel/message.h"
#include "peel/plan.h"

namespace peel::cli {

Parsed load_message(const std::string& path, const Moved& moved = {});  // throws Failure that names the file

// Throws Failure where reading this message takes memory or disk space far beyond its own size (plausible_dense_bytes)
// and nobody allowed it. `what` says for what the bytes are.
void check_plausible(const std::string& path, const Message& message, std::string_view what, std::uint64_t bytes,
                     std::optional<std::uint64_t> allowed);

// Returns how many bytes the file has.
std::uint64_t save_message(const std::string& path, OutputOptions options, const Plan& plan, const Message& message);

}  // namespace peel::cli
