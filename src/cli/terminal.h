// How text looks where people read it: no line is wider than a plain terminal, and a few words have a colour.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace peel::cli {

inline constexpr std::size_t kColumns = 80;

// What a word is, not which colour it has.
enum class Ink : std::uint8_t { plain, heading, good, bad };

// Whether the stream is a terminal that understands escape sequences, as TERM=dumb does not.
bool is_terminal(std::FILE* stream) noexcept;

// Whether it also shows colours, to somebody who has not turned them off with NO_COLOR.
bool has_colour(std::FILE* stream) noexcept;

// The escape sequences around a word, or nothing where the stream has no colour.
const char* begin_ink(Ink ink, std::FILE* stream) noexcept;
const char* end_ink(Ink ink, std::FILE* stream) noexcept;
std::string inked(Ink ink, std::string_view text, std::FILE* stream = stdout);

// Cut to `width` columns, with ".." where something is missing: at its end, or at the front of a path.
std::string shortened(std::string_view text, std::size_t width);
std::string shortened_path(std::string_view path, std::size_t width);

// Broken between words into lines of at most kColumns, ended by a newline. The first line begins at column `indent`,
// where the caller has written something, and the others are indented so far.
std::string wrapped(std::string_view text, std::size_t indent = 0);

// Prints a label and what is to be said of it, behind it.
void print_fact(std::string_view label, std::string_view text, Ink ink = Ink::plain);

}  // namespace peel::cli
