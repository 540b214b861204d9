// Options that are lists: every value is measured.
#pragma once

#include <fmt/format.h>
#include <CLI/Error.hpp>

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace peel::cli {

// The parts between commas, parsed one by one.
template <typename Parse>
auto parse_list(std::string_view list, Parse parse) {
  std::vector<decltype(parse(list))> values;
  for (std::size_t start = 0; start <= list.size();) {
    const std::size_t comma = std::min(list.find(',', start), list.size());
    values.push_back(parse(list.substr(start, comma - start)));
    start = comma + 1;
  }
  return values;
}

// The one of `kinds` that has this name.
template <typename Kind>
Kind parse_name(std::string_view text, std::initializer_list<Kind> kinds, std::string_view option) {
  std::string known;
  for (const Kind kind : kinds) {
    if (text == name(kind)) return kind;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", name(kind));
  }
  throw CLI::ValidationError(fmt::format("'{}' is not for {}; use one of {}", text, option, known));
}

}  // namespace peel::cli
