// peel completion: a script that completes the words of peel in a shell.
#include "cli/completion.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>

#include "cli/commands.h"
#include "cli/sweep.h"

namespace peel::cli {
namespace {

// Of "{packed,sketch}", as options with a few values name their type; of a type that is something else, none.
std::vector<std::string> values_in(const std::string& type) {
  const std::size_t open = type.find('{');
  const std::size_t close = type.find('}');
  if (open == std::string::npos || close == std::string::npos || type.find(" OR ") != std::string::npos) return {};
  return parse_list(type.substr(open + 1, close - open - 1), [](std::string_view one) { return std::string(one); });
}

CompletedOption completed(const CLI::Option& option) {
  CompletedOption result;
  for (const std::string& name : option.get_snames()) result.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) result.names.push_back("--" + name);
  result.description = option.get_description();
  if (option.get_items_expected_max() == 0) return result;
  const std::string type = option.get_type_name();
  const bool file = type.find("FILE") != std::string::npos;
  result.takes = file ? CompletedOption::Takes::file : CompletedOption::Takes::something;
  result.may_stand_alone = option.get_items_expected_min() == 0;
  result.values = values_in(type);
  return result;
}

void collect(const CLI::App& app, const std::string& path, std::vector<CompletedCommand>& commands) {
  CompletedCommand command{.path = path, .description = app.get_description()};
  for (const CLI::Option* option : app.get_options()) {
    if (option->nonpositional()) {
      command.options.push_back(completed(*option));
    } else {
      command.arguments = values_in(option->get_type_name());
      command.takes_files = command.arguments.empty();
    }
  }
  const auto subcommands = app.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* one : subcommands) command.subcommands.push_back(one->get_name());
  commands.push_back(std::move(command));
  for (const CLI::App* one : subcommands) collect(*one, path + " " + one->get_name(), commands);
}

}  // namespace

std::string CompletedCommand::name() const { return path.substr(path.rfind(' ') + 1); }

std::vector<CompletedCommand> completed_commands(const CLI::App& program) {
  std::vector<CompletedCommand> commands;
  collect(program, "", commands);
  return commands;
}

void add_completion(CLI::App& app) {
  CLI::App* command = app.add_subcommand("completion", "Print a script that completes the words of peel in a shell");
  const auto shell = std::make_shared<std::string>();
  command->add_option("shell", *shell, "The shell that reads it")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->callback([&app, shell] {
    const std::vector<CompletedCommand> commands = completed_commands(app);
    const std::string script = *shell == "bash"  ? bash_completion(commands)
                               : *shell == "zsh" ? zsh_completion(commands)
                                                 : fish_completion(commands);
    fmt::print("{}", script);
  });
}

}  // namespace peel::cli
