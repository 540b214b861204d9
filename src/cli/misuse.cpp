#include "cli/misuse.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string_view>
#include <vector>

namespace peel::cli {
namespace {

// How many letters must be added, left out, replaced or swapped with their neighbours to make one word of another.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> rows(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  std::iota(rows[0].begin(), rows[0].end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    rows[i][0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = a[i - 1] == b[j - 1];
      rows[i][j] = std::min({rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        rows[i][j] = std::min(rows[i][j], rows[i - 2][j - 2] + 1);
      }
    }
  }
  return rows[a.size()][b.size()];
}

// "; did you mean 'decode'?", or nothing where no candidate is near: a third of the letters may be wrong, or the end
// missing.
std::string guess(std::string_view word, const std::vector<std::string>& candidates) {
  std::string_view best;
  std::size_t least = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const bool begun = word.size() >= 3 && candidate.starts_with(word);
    const std::size_t far = begun ? 1 : distance(word, candidate);
    if (far < least) {
      least = far;
      best = candidate;
    }
  }
  return best.empty() ? "" : fmt::format("; did you mean '{}'?", best);
}

std::vector<std::string> subcommands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* one : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(one->get_name());
  return names;
}

std::vector<std::string> options_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// A subcommand as it is typed, and what it was given that it does not know.
struct Place {
  const CLI::App* app = nullptr;
  std::string command;
  std::vector<std::string> unknown;
};

// The first one that got something unknown, else the last one that was named.
Place find_place(const CLI::App& program) {
  Place place{&program, "peel", program.remaining(false)};
  while (place.unknown.empty() && !place.app->get_subcommands().empty()) {
    place.app = place.app->get_subcommands().front();
    place.command += " " + place.app->get_name();
    place.unknown = place.app->remaining(false);
  }
  return place;
}

bool is_option(std::string_view word) { return word.size() > 1 && word.front() == '-'; }

}  // namespace

bool names_no_subcommand(const CLI::App& program) {
  const Place place = find_place(program);
  return !place.unknown.empty() && !is_option(place.unknown.front()) && !subcommands_of(*place.app).empty();
}

std::string explain_misuse(const CLI::App& program, const CLI::ParseError& error) {
  const Place place = find_place(program);
  const std::string advice = fmt::format("; try {} --help", place.command);
  if (place.unknown.empty()) return error.what() + advice;
  const std::string word = place.unknown.front();
  std::string sentence;
  std::string meant;
  if (is_option(word)) {
    const std::string option = word.substr(0, word.find('='));
    sentence = fmt::format("{} has no option '{}'", place.command, option);
    meant = guess(option, options_of(*place.app));
  } else if (names_no_subcommand(program)) {
    sentence =
        fmt::format("there is no subcommand '{}'", place.app == &program ? word : place.command.substr(5) + " " + word);
    meant = guess(word, subcommands_of(*place.app));
  } else {
    sentence = fmt::format("{} takes no '{}'", place.command, word);
  }
  return sentence + (meant.empty() ? advice : meant);
}

}  // namespace peel::cli
