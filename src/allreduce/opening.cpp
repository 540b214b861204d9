#include "allreduce/opening.h"

#include <algorithm>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace peel::detail {

Opening make_opening(std::uint64_t must, std::uint64_t should, std::uint64_t flags) {
  return {must, ~must, should, ~should, flags, 0, 0, 0};
}

OpeningResult read_opening(const Opening& combined) {
  return {
      .agreed = (combined[0] & combined[1]) == 0, .planned = (combined[2] & combined[3]) == 0, .flags = combined[4]};
}

// Lines of "name=value". Neither holds a line break.
std::string Terms::lines() const {
  std::string text;
  for (const auto& [name, value] : all_) text.append(name).append("=").append(value).append("\n");
  return text;
}

// The refusal first, as one of them.
std::vector<std::byte> Terms::serialise() const {
  const std::string text = "refusal=" + refusal_ + "\n" + lines();
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  return {bytes, bytes + text.size()};
}

std::uint64_t Terms::fingerprint() const {
  const std::string text = lines();
  return XXH3_64bits(text.data(), text.size());
}

namespace {

struct Line {
  std::string name;
  std::string value;
};

std::vector<Line> lines_of(const std::vector<std::byte>& bytes) {
  std::vector<Line> lines;
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    const std::size_t equals = std::min(text.find('=', start), end);
    lines.push_back(
        {text.substr(start, equals - start), text.substr(std::min(equals + 1, end), end - std::min(equals + 1, end))});
    start = end + 1;
  }
  return lines;
}

std::string value_of(const std::vector<Line>& lines, const std::string& name) {
  for (const Line& line : lines) {
    if (line.name == name) return line.value;
  }
  return "none";
}

}  // namespace

std::string explain_difference(std::span<const std::vector<std::byte>> of_all) {
  const std::vector<Line> first = lines_of(of_all[0]);
  for (std::size_t w = 0; w < of_all.size(); ++w) {
    const std::vector<Line> lines = lines_of(of_all[w]);
    if (!lines.empty() && lines[0].name == "refusal" && !lines[0].value.empty()) {
      return "Worker " + std::to_string(w) + " cannot take part: " + lines[0].value;
    }
  }
  for (std::size_t w = 1; w < of_all.size(); ++w) {
    const std::vector<Line> lines = lines_of(of_all[w]);
    for (const Line& line : first) {
      const std::string other = value_of(lines, line.name);
      if (other != line.value) {
        return "Workers differ in " + line.name + ": it is " + line.value + " on worker 0 and " + other +
               " on worker " + std::to_string(w) + "; call with the same arrays and options everywhere.";
      }
    }
  }
  return "Workers differ in what they were called with; call with the same arrays, options and version everywhere.";
}

}  // namespace peel::detail
