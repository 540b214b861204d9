// Reports for other programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace peel::cli {

using Json = nlohmann::ordered_json;  // keys keep the order in which a report names them

// Every object on a line of its own, to a new file, or to standard output for "-".
void write_json_lines(const std::string& path, const std::vector<Json>& reports);

}  // namespace peel::cli
