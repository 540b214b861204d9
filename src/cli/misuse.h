// What is wrong with the words of a command line, as a sentence.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace peel::cli {

// A word that no subcommand or option knows comes first, with the one that was probably meant: what else CLI11
// complains of follows from it more often than not.
std::string explain_misuse(const CLI::App& program, const CLI::ParseError& error);

// Whether a word stands where only a subcommand can. Then not even --help is answered, for nobody knows whose.
bool names_no_subcommand(const CLI::App& program);

}  // namespace peel::cli
