#include "cli/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace peel::cli {
namespace {

constexpr std::string_view kCut = "..";
constexpr std::size_t kLabel = 14;  // columns, with the blank behind it

}  // namespace

bool is_terminal(std::FILE* stream) noexcept {
  const char* kind = std::getenv("TERM");
  return kind != nullptr && std::string_view(kind) != "dumb" && isatty(fileno(stream)) != 0;
}

bool has_colour(std::FILE* stream) noexcept {
  const char* refused = std::getenv("NO_COLOR");
  return (refused == nullptr || *refused == '\0') && is_terminal(stream);
}

const char* begin_ink(Ink ink, std::FILE* stream) noexcept {
  if (ink == Ink::plain || !has_colour(stream)) return "";
  return ink == Ink::heading ? "\033[1m" : ink == Ink::good ? "\033[32m" : "\033[31m";
}

const char* end_ink(Ink ink, std::FILE* stream) noexcept {
  return ink == Ink::plain || !has_colour(stream) ? "" : "\033[0m";
}

std::string inked(Ink ink, std::string_view text, std::FILE* stream) {
  return fmt::format("{}{}{}", begin_ink(ink, stream), text, end_ink(ink, stream));
}

std::string shortened(std::string_view text, std::size_t width) {
  if (text.size() <= width) return std::string(text);
  return std::string(text.substr(0, width - kCut.size())).append(kCut);
}

std::string shortened_path(std::string_view path, std::size_t width) {
  if (path.size() <= width) return std::string(path);
  return std::string(kCut).append(path.substr(path.size() - (width - kCut.size())));
}

std::string wrapped(std::string_view text, std::size_t indent) {
  std::string lines;
  std::size_t column = indent;
  while (!text.empty()) {
    std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    const auto begin_line = [&] {
      lines.append("\n").append(indent, ' ');
      column = indent;
    };
    if (column > indent && column + 1 + word.size() > kColumns) begin_line();
    for (; word.size() > kColumns - indent; begin_line()) {  // a path, say
      lines.append(word.substr(0, kColumns - indent));
      word.remove_prefix(kColumns - indent);
    }
    if (column > indent) lines += ' ';
    column += word.size() + (column > indent ? 1 : 0);
    lines += word;
  }
  return lines + "\n";
}

void print_fact(std::string_view label, std::string_view text, Ink ink) {
  const std::string line = fmt::format("{:<{}}{}", label, kLabel, inked(ink, wrapped(text, kLabel)));
  std::fwrite(line.data(), 1, line.size(), stdout);  // main() checks the stream before it ends
}

}  // namespace peel::cli
