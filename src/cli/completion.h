// What a shell completes: every subcommand with its options and the values that they take, read from the options as the
// program parses them, so that it is never out of date.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace peel::cli {

struct CompletedOption {
  enum class Takes : std::uint8_t { nothing, something, file };

  std::vector<std::string> names;  // with their dashes, the short one first
  std::string description;
  Takes takes = Takes::nothing;
  bool may_stand_alone = false;     // without what it takes
  std::vector<std::string> values;  // that it takes, if that is all there are
};

struct CompletedCommand {
  std::string path;  // " bench codec"; empty of the program
  std::string description = {};
  std::vector<CompletedOption> options = {};
  std::vector<std::string> arguments = {};  // that may stand for themselves, if that is all there are
  bool takes_files = false;
  std::vector<std::string> subcommands = {};  // names

  [[nodiscard]] std::string name() const;  // the last word
};

// The program first, and every command before its subcommands.
std::vector<CompletedCommand> completed_commands(const CLI::App& program);

std::string bash_completion(const std::vector<CompletedCommand>& commands);
std::string zsh_completion(const std::vector<CompletedCommand>& commands);
std::string fish_completion(const std::vector<CompletedCommand>& commands);

}  // namespace peel::cli
