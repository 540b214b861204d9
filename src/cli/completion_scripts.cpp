// The same commands in the languages of three shells. A word may be a subcommand in one place and an option's value in
// another, so all scripts first find the command that the words before the cursor make.
#include <fmt/format.h>

#include <algorithm>

#include "cli/completion.h"

namespace peel::cli {
namespace {

using Takes = CompletedOption::Takes;

// " encode", " bench", " bench codec": every path, as shells match it.
std::string all_paths(const std::vector<CompletedCommand>& commands, std::string_view between) {
  std::string paths;
  for (const CompletedCommand& command : commands) {
    if (!command.path.empty()) paths += fmt::format("{}'{}'", paths.empty() ? "" : between, command.path);
  }
  return paths;
}

// With a backslash before each of these characters.
std::string escaped(std::string_view text, std::string_view characters) {
  std::string all;
  for (const char c : text) {
    if (characters.find(c) != std::string_view::npos) all += '\\';
    all += c;
  }
  return all;
}

std::string in_quotes(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string bash_values(const CompletedCommand& command) {
  std::string cases;
  for (const CompletedOption& option : command.options) {
    if (option.takes == Takes::nothing) continue;
    std::string labels;
    for (const std::string& name : option.names) {
      labels += fmt::format("{}'{} {}'", labels.empty() ? "" : " | ", command.path, name);
    }
    const std::string words = fmt::format("{}", fmt::join(option.values, " "));
    const std::string action = !option.values.empty()        ? fmt::format("_peel_offer '{}'; return", words)
                               : option.takes == Takes::file ? "_peel_offer_files; return"
                                                             : "return";
    const bool alone = option.may_stand_alone;
    cases += fmt::format("    {}) {}{} ;;\n", labels, alone ? "[[ $word == -* ]] || { " : "",
                         alone ? action + "; }" : action);
  }
  return cases;
}

std::string bash_words(const CompletedCommand& command) {
  std::vector<std::string> options;
  for (const CompletedOption& option : command.options) {
    options.insert(options.end(), option.names.begin(), option.names.end());
  }
  std::vector<std::string> words = command.subcommands;
  words.insert(words.end(), command.arguments.begin(), command.arguments.end());
  const std::string otherwise =
      command.takes_files ? "_peel_offer_files"
                          : fmt::format("_peel_offer '{} {}'", fmt::join(words, " "), fmt::join(options, " "));
  return fmt::format("    '{}')\n      if [[ $word == -* ]]; then _peel_offer '{}'; else {}; fi ;;\n", command.path,
                     fmt::join(options, " "), otherwise);
}

std::string zsh_function(const CompletedCommand& command) {
  std::string path = "_peel" + command.path;
  std::replace(path.begin(), path.end(), ' ', '_');
  return path;
}

// -o and --output exclude each other; --json takes its file or none. An action that begins with a blank is called as it
// is written.
std::string zsh_option(const CompletedOption& option) {
  const std::string text = escaped(option.description, "[]:\\");
  std::string value;
  if (option.takes != Takes::nothing) {
    value = option.may_stand_alone ? "::" : ":";
    value += "value:";
    if (!option.values.empty()) value += fmt::format(" _values -s , value {}", fmt::join(option.values, " "));
    if (option.values.empty() && option.takes == Takes::file) value += "_files";
  }
  std::string lines;
  for (const std::string& name : option.names) {
    const std::string excluded = fmt::format("{}", fmt::join(option.names, " "));
    lines += fmt::format(" \\\n    {}", in_quotes(fmt::format("({}){}[{}]{}", excluded, name, text, value)));
  }
  return lines;
}

std::string zsh_commands(const CompletedCommand& command, const std::vector<CompletedCommand>& all) {
  std::string names;
  std::string calls;
  for (const CompletedCommand& one : all) {
    if (one.path.empty() || one.path.substr(0, one.path.rfind(' ')) != command.path) continue;
    names += fmt::format(" {}", in_quotes(fmt::format("{}:{}", one.name(), one.description)));
    calls += fmt::format("        {}) {} ;;\n", one.name(), zsh_function(one));
  }
  return fmt::format(
      "  case $state in\n"
      "    command) local -a commands=({})\n"
      "      _describe -t commands subcommand commands ;;\n"
      "    argument)\n"
      "      case $words[1] in\n{}      esac ;;\n"
      "  esac\n",
      names, calls);
}

std::string fish_option(const CompletedCommand& command, const CompletedOption& option) {
  std::string line = fmt::format("complete -c peel -n \"__peel_at '{}'\"", command.path);
  for (const std::string& name : option.names) {
    line += name.starts_with("--") ? fmt::format(" -l {}", name.substr(2)) : fmt::format(" -s {}", name.substr(1));
  }
  if (option.takes == Takes::file) line += " -r -F";
  if (option.takes == Takes::something) line += " -x";
  if (!option.values.empty()) line += fmt::format(" -a '{}'", fmt::join(option.values, " "));
  return line + fmt::format(" -d '{}'\n", escaped(option.description, "'\\"));
}

}  // namespace

std::string bash_completion(const std::vector<CompletedCommand>& commands) {
  std::string values;
  std::string words;
  for (const CompletedCommand& command : commands) {
    values += bash_values(command);
    words += bash_words(command);
  }
  return fmt::format(
      R"(# Completes the words of peel in bash; made by: peel completion bash

# Words that begin as the one under the cursor does; of a list, its last part.
_peel_offer() {{
  local before=
  [[ $word != *,* ]] || before="${{word%,*}},"
  COMPREPLY=($(compgen -P "$before" -W "$1" -- "${{word##*,}}"))
}}
_peel_offer_files() {{
  local IFS=$'\n'
  compopt -o filenames 2>/dev/null
  COMPREPLY=($(compgen -f -- "$word"))
}}

_peel() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD - 1]}}" at= i
  # bash takes --option=value for three words.
  if [[ $word == = ]]; then
    word=
  elif [[ $before == = ]]; then
    before="${{COMP_WORDS[COMP_CWORD - 2]}}"
  fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$at ${{COMP_WORDS[i]}}" in
      {}) at+=" ${{COMP_WORDS[i]}}" ;;
    esac
  done
  COMPREPLY=()
  case "$at $before" in
{}  esac
  case "$at" in
{}  esac
}}
complete -F _peel peel
)",
      all_paths(commands, " | "), values, words);
}

std::string zsh_completion(const std::vector<CompletedCommand>& commands) {
  std::string script = "#compdef peel\n# Completes the words of peel in zsh; made by: peel completion zsh\n";
  for (const CompletedCommand& command : commands) {
    std::string options;
    for (const CompletedOption& option : command.options) options += zsh_option(option);
    const bool leads_on = !command.subcommands.empty();
    if (leads_on) options += " \\\n    '1:subcommand:->command' \\\n    '*::argument:->argument'";
    if (command.takes_files) options += " \\\n    '*:file:_files'";
    if (!command.arguments.empty()) {
      options += fmt::format(" \\\n    '1:argument:({})'", fmt::join(command.arguments, " "));
    }
    script +=
        fmt::format("\n{}() {{\n{}  _arguments -s{}{}\n{}}}\n", zsh_function(command),
                    leads_on ? "  local curcontext=$curcontext state state_descr line\n  typeset -A opt_args\n" : "",
                    leads_on ? " -C" : "", options, leads_on ? zsh_commands(command, commands) : "");
  }
  return script + "\nif [[ $funcstack[1] == _peel ]]; then\n  _peel \"$@\"\nelse\n  compdef _peel peel\nfi\n";
}

std::string fish_completion(const std::vector<CompletedCommand>& commands) {
  std::string script = fmt::format(
      R"(# Completes the words of peel in fish; made by: peel completion fish

# Whether the words before the cursor make this command.
function __peel_at
  set -l at ''
  for word in (commandline -opc)[2..-1]
    switch "$at $word"
      case {}
        set at "$at $word"
    end
  end
  test "$at" = "$argv[1]"
end

complete -c peel -f
)",
      all_paths(commands, " "));
  for (const CompletedCommand& command : commands) {
    if (!command.path.empty()) {
      script += fmt::format("complete -c peel -n \"__peel_at '{}'\" -a {} -d '{}'\n",
                            command.path.substr(0, command.path.rfind(' ')), command.name(),
                            escaped(command.description, "'\\"));
    }
    if (command.takes_files) script += fmt::format("complete -c peel -n \"__peel_at '{}'\" -F\n", command.path);
    if (!command.arguments.empty()) {
      script += fmt::format("complete -c peel -n \"__peel_at '{}'\" -a '{}'\n", command.path,
                            fmt::join(command.arguments, " "));
    }
    for (const CompletedOption& option : command.options) script += fish_option(command, option);
  }
  return script;
}

}  // namespace peel::cli
