// Reports for other programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/files.h"

namespace CLI {
class App;
}  // namespace CLI

namespace peel::cli {

using Json = nlohmann::ordered_json;  // keys keep the order in which a report names them

// --json [FILE]: `path` becomes FILE, or "-" without one, and stays empty where nobody asks for JSON.
void add_json_option(CLI::App& command, std::string& path);

// What a file for JSON is opened with.
OutputOptions json_output();

// Every object on a line of its own, to a new file, or to standard output for "-".
void write_json_lines(const std::string& path, const std::vector<Json>& reports);

}  // namespace peel::cli
