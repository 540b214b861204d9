#include "cli/help.h"

#include <fmt/format.h>

#include "cli/terminal.h"

namespace peel::cli {
namespace {

constexpr std::size_t kDescriptions = 30;  // the column where they begin
constexpr std::size_t kFurtherLines = 6;   // of names that are too long for one

std::string laid_out(const std::string& names, const std::string& description) {
  std::string text = "  " + wrapped(names, kFurtherLines);
  if (description.empty()) return text;
  if (text.size() <= kDescriptions) {  // it ends with a newline
    text.back() = ' ';
    text.resize(kDescriptions, ' ');
  } else {
    text.append(kDescriptions, ' ');
  }
  return text + wrapped(description, kDescriptions);
}

}  // namespace

std::string HelpFormatter::make_option(const CLI::Option* option, bool is_positional) const {
  return laid_out(make_option_name(option, is_positional) + make_option_opts(option), make_option_desc(option));
}

std::string HelpFormatter::make_subcommand(const CLI::App* subcommand) const {
  return laid_out(subcommand->get_display_name(true), subcommand->get_description());
}

}  // namespace peel::cli
