#include "cli/machine.h"

#include <fmt/format.h>

#include <ctime>
#include <fstream>

#include "cli/parallel.h"

namespace peel::cli {
namespace {

// Other processors than those of x86 have no such line.
std::string processor() {
  std::ifstream lines("/proc/cpuinfo");
  for (std::string line; std::getline(lines, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "";
}

}  // namespace

std::string machine() {
  const std::string model = processor();
  return fmt::format("{} cores{}{}", all_cores(), model.empty() ? "" : ", ", model);
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return fmt::format("{:04}-{:02}-{:02}", local.tm_year + 1900, local.tm_mon + 1, local.tm_mday);
}

}  // namespace peel::cli
