// A measurement for programs (one JSON object) and for people (one row of a table).
#pragma once

#include <string>

#include "cli/gradients.h"
#include "cli/json.h"
#include "cli/measure.h"

namespace peel::cli {

// Field names are a contract: other tools read them.
Json to_json(const Pattern& pattern, const Gradients& gradients, const Measurement& measurement);

std::string table_heading();
std::string table_row(const Gradients& gradients, const Measurement& measurement);

}  // namespace peel::cli
