// How --help is laid out: as CLI11 does it, in lines of at most 80 columns.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace peel::cli {

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_subcommand(const CLI::App* subcommand) const override;
};

}  // namespace peel::cli
