// Numbers as people write and read them: 2^26, 10gbit, 28.9M, 3.62%.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "peel/types.h"

namespace peel::cli {

// All parsers throw CLI::ValidationError: a wrong option is a mistake in usage, exit code 2.
std::uint64_t parse_count(std::string_view text);       // 67108864, 2^26, 64M (millions), 1e8
std::uint32_t parse_small(std::string_view text);       // a count below 2^31
std::uint32_t parse_grain_size(std::string_view text);  // a power of two from 1 to 1024
double parse_bandwidth(std::string_view text);          // bits per second: 10gbit, 200mbit, 1.25GB, 1e9
double parse_positive(std::string_view text);           // 12.5
double parse_share(std::string_view text);              // 0.01 or 1%, from 0 to 1

inline constexpr std::array kElementTypes = {ElementType::float32,  ElementType::float64, ElementType::float16,
                                             ElementType::bfloat16, ElementType::int8,    ElementType::int16,
                                             ElementType::int32,    ElementType::int64};
inline constexpr std::array kCodecs = {Codec::packed, Codec::sketch};
inline constexpr std::array kCells = {CellType::automatic, CellType::native, CellType::fixed32, CellType::fixed64,
                                      CellType::float32};
inline constexpr std::array kIndexes = {Index::automatic, Index::bitmap, Index::bloom, Index::list};

// "{packed,sketch}": the type of an option that takes one of these. Help shows it, and shells complete it.
template <typename Kinds>
std::string one_of(const Kinds& kinds) {
  std::string names;
  for (const auto kind : kinds) names.append(names.empty() ? "{" : ",").append(name(kind));
  return names + "}";
}

ElementType parse_element_type(std::string_view text);
Codec parse_codec(std::string_view text);
CellType parse_cells(std::string_view text);
Index parse_index(std::string_view text);

std::string show_bytes(std::uint64_t bytes);                      // 512, 28.9K, 115.5M; powers of 1000
std::string show_count(std::uint64_t count);                      // 28,869,697
std::string show_percent(double share);                           // 3.62%, with three digits below 100%
std::string show_seconds(double seconds);                         // 1.24 s, 35.1 ms, 810 us
std::string show_ratio(std::uint64_t part, std::uint64_t whole);  // as percent, "-" of nothing

}  // namespace peel::cli
