#include "cli/numbers.h"

#include <fmt/format.h>
#include <CLI/Error.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <iterator>
#include <span>

namespace peel::cli {
namespace {

[[noreturn]] void refuse(std::string_view text, std::string_view wanted) {
  throw CLI::ValidationError(fmt::format("'{}' is not {}", text, wanted));
}

struct Number {
  double value = 0;
  std::string suffix;  // in lower case
};

Number split_number(std::string_view text, std::string_view wanted) {
  Number number;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number.value);
  if (problem != std::errc() || !std::isfinite(number.value) || number.value < 0) refuse(text, wanted);
  std::transform(end, text.data() + text.size(), std::back_inserter(number.suffix),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return number;
}

// 10^(3k) for the k-th of "kmgt", and the suffix without it.
double take_magnitude(std::string& suffix) {
  const std::size_t power = suffix.empty() ? std::string_view::npos : std::string_view("kmgt").find(suffix.front());
  if (power == std::string_view::npos) return 1;
  suffix.erase(0, 1);
  return std::pow(1000.0, static_cast<double>(power + 1));
}

template <typename Kind>
Kind parse_kind(std::string_view text, std::span<const Kind> kinds) {
  std::string known;
  for (const Kind kind : kinds) {
    if (text == name(kind)) return kind;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", name(kind));
  }
  refuse(text, "one of " + known);
}

}  // namespace

std::uint64_t parse_count(std::string_view text) {
  constexpr std::string_view kWanted = "a count such as 67108864, 2^26, 64M or 1e8";
  std::uint64_t whole = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), whole);
  if (problem == std::errc() && end == text.data() + text.size()) return whole;
  if (text.starts_with("2^")) {
    unsigned exponent = 0;
    const auto [stop, wrong] = std::from_chars(text.data() + 2, text.data() + text.size(), exponent);
    if (wrong != std::errc() || stop != text.data() + text.size() || exponent > 63) refuse(text, kWanted);
    return std::uint64_t{1} << exponent;
  }
  Number number = split_number(text, kWanted);
  const double value = number.value * take_magnitude(number.suffix);
  if (!number.suffix.empty() || value >= 0x1p63 || value != std::floor(value)) refuse(text, kWanted);
  return static_cast<std::uint64_t>(value);
}

std::uint32_t parse_small(std::string_view text) {
  const std::uint64_t count = parse_count(text);
  if (count > 0x7FFFFFFF) throw CLI::ValidationError(fmt::format("'{}' is too large here", text));
  return static_cast<std::uint32_t>(count);
}

std::uint32_t parse_grain_size(std::string_view text) {
  const std::uint32_t grain = parse_small(text);
  if (!std::has_single_bit(grain) || grain > 1024) refuse(text, "a grain; use a power of two from 1 to 1024");
  return grain;
}

double parse_bandwidth(std::string_view text) {
  constexpr std::string_view kWanted = "a bandwidth such as 10gbit, 200mbit, 1.25GB or 1e9 (bits per second)";
  Number number = split_number(text, kWanted);
  // In "1.25GB" the B is for bytes; the case is lost, so look at the text.
  const bool bytes = text.ends_with("B") || text.ends_with("Bps") || text.ends_with("B/s");
  const double value = number.value * take_magnitude(number.suffix);
  constexpr std::array<std::string_view, 7> kUnits = {"", "bit", "bps", "bit/s", "b", "b/s", "bits"};
  if (std::find(kUnits.begin(), kUnits.end(), number.suffix) == kUnits.end() || value <= 0) refuse(text, kWanted);
  return bytes ? 8 * value : value;
}

double parse_positive(std::string_view text) {
  constexpr std::string_view kWanted = "a number above 0";
  const Number number = split_number(text, kWanted);
  if (!number.suffix.empty() || number.value == 0) refuse(text, kWanted);
  return number.value;
}

double parse_share(std::string_view text) {
  constexpr std::string_view kWanted = "a share such as 0.01 or 1%";
  const Number number = split_number(text, kWanted);
  const double value = number.suffix == "%" ? number.value / 100 : number.value;
  if ((!number.suffix.empty() && number.suffix != "%") || value > 1) refuse(text, kWanted);
  return value;
}

ElementType parse_element_type(std::string_view text) { return parse_kind<ElementType>(text, kElementTypes); }
Codec parse_codec(std::string_view text) { return parse_kind<Codec>(text, kCodecs); }
CellType parse_cells(std::string_view text) { return parse_kind<CellType>(text, kCells); }
Index parse_index(std::string_view text) { return parse_kind<Index>(text, kIndexes); }

std::string show_bytes(std::uint64_t bytes) {
  if (bytes < 1000) return fmt::format("{}", bytes);
  double value = static_cast<double>(bytes);
  std::size_t power = 0;
  constexpr std::string_view kSuffixes = " KMGTPE";
  while (value >= 999.95 && power + 1 < kSuffixes.size()) {
    value /= 1000;
    ++power;
  }
  return fmt::format("{:.1f}{}", value, kSuffixes[power]);
}

std::string show_count(std::uint64_t count) {
  std::string text = fmt::format("{}", count);
  for (std::size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, 1, ',');
  return text;
}

std::string show_percent(double share) {
  const double percent = 100 * share;
  if (percent >= 99.95) return fmt::format("{:.0f}%", percent);
  return percent >= 9.995 ? fmt::format("{:.1f}%", percent) : fmt::format("{:.2f}%", percent);
}

std::string show_seconds(double seconds) {
  if (seconds >= 1e5) return fmt::format("{:.3g} s", seconds);
  if (seconds >= 1) return fmt::format("{:.{}f} s", seconds, seconds < 1000 ? 2 : 0);
  return seconds >= 1e-3 ? fmt::format("{:.1f} ms", seconds * 1e3) : fmt::format("{:.0f} us", seconds * 1e6);
}

std::string show_ratio(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? "-" : show_percent(static_cast<double>(part) / static_cast<double>(whole));
}

}  // namespace peel::cli
