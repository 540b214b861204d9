// peel demo: four workers all-reduce gradients of several densities; a table, and on demand a page with charts. Workers
// are threads of this process, or whoever wrote the results that it is given: scripts/demo runs them on a network.
#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/contest_report.h"
#include "cli/demo_page.h"
#include "cli/files.h"
#include "cli/numbers.h"
#include "cli/thread_workers.h"

namespace peel::cli {
namespace {

struct DemoOptions {
  std::string results;
  std::string html;
};

constexpr std::uint32_t kWorkers = 4;
constexpr std::uint64_t kElements = std::uint64_t{1} << 22;

struct Shape {
  const char* pattern;
  double density;
};
constexpr Shape kShapes[] = {{"uniform", 0.001}, {"uniform", 0.01}, {"uniform", 0.1},
                             {"uniform", 0.3},   {"uniform", 0.9},  {"rows:64", 0.035}};

constexpr std::string_view kRow = "{:<10} {:>7}  {:<8} {:<8} {:>9} {:>9} {:>8} {:>8} {:>8}  {}\n";

DemoResult result_of(const Json& json) {
  return {.pattern = json.at("pattern"),
          .density = json.at("density"),
          .strategy = json.at("strategy"),
          .chosen = json.at("chosen"),
          .baseline = json.at("baseline"),
          .seconds = json.at("seconds"),
          .baseline_seconds = json.at("baseline_seconds"),
          .bytes = json.at("bytes_sent"),
          .dense_bytes = json.at("dense_bytes"),
          .lost = json.at("lost"),
          .wrong = json.at("wrong")};
}

std::string where_of(const Json& json) {
  const auto workers = json.at("workers").get<unsigned>();
  const std::string what = fmt::format("gradients of {} {}", show_count(json.at("elements").get<std::uint64_t>()),
                                       json.at("type").get<std::string>());
  if (json.contains("rate_bits")) {
    return fmt::format("{} hosts on links of {:g} Mbit/s sum {}; compared with {}", workers,
                       json.at("rate_bits").get<double>() / 1e6, what, json.at("baseline").get<std::string>());
  }
  if (json.at("transport") == "mpi") {
    return fmt::format("{} processes sum {} over loopback, which is faster than any network; compared with {}", workers,
                       what, json.at("baseline").get<std::string>());
  }
  return fmt::format("{} threads sum {} in memory, where only work counts and no network; compared with dense", workers,
                     what);
}

// Prints results as they come, and keeps them for the page.
class Show {
 public:
  void add(const Json& json) {
    if (results_.empty()) {
      where_ = where_of(json);
      fmt::print("{}\n\n", where_);
      fmt::print(fmt::runtime(kRow), "non-zeros", "density", "strategy", "chosen", "time", "dense", "speed-up", "bytes",
                 "of dense", "every sum");
    }
    const DemoResult one = result_of(json);
    const bool first =
        results_.empty() || results_.back().pattern != one.pattern || results_.back().density != one.density;
    const std::string verdict =
        one.wrong == 0 && one.lost == 0 ? "exact" : fmt::format("{} wrong, {} lost", one.wrong, one.lost);
    fmt::print(fmt::runtime(kRow), first ? one.pattern : "", first ? show_percent(one.density) : "", one.strategy,
               one.chosen, show_seconds(one.seconds), show_seconds(one.baseline_seconds),
               fmt::format("{:.1f}x", one.baseline_seconds / one.seconds),
               show_bytes(static_cast<std::uint64_t>(one.bytes)), show_percent(one.bytes / one.dense_bytes), verdict);
    std::fflush(stdout);
    wrong_ += one.wrong + one.lost;
    results_.push_back(one);
  }

  void finish(const std::string& html) {
    if (results_.empty()) throw Failure("there are no results to show; see what was said before");
    if (!html.empty()) {
      const std::string page = demo_page(where_, results_);
      Output output(html, {.force = true});
      output.write(std::as_bytes(std::span(page)));
      output.commit();
      fmt::print("\ncharts: {}\n", html);
    }
    if (wrong_ != 0) throw Failure(fmt::format("{} elements of the sums are wrong or lost", wrong_));
  }

 private:
  std::string where_;
  std::vector<DemoResult> results_;
  std::uint64_t wrong_ = 0;
};

void show_threads(Show& show) {
  ContestOptions options{.strategies = {Strategy::packed, Strategy::sketch, Strategy::split, Strategy::automatic},
                         .warmup = 2,
                         .repeat = 3};
  for (const Shape& shape : kShapes) {
    const Pattern pattern = parse_patterns(shape.pattern).front();
    const GradientOptions drawn{
        .elements = kElements, .density = shape.density, .workers = kWorkers, .sharing = Sharing::independent};
    const Gradients gradients(pattern, drawn);
    const ThreadContest contest = hold_on_threads(gradients, options);
    const ContestSetting setting{"inprocess", pattern, &gradients, drawn, &options, contest.link};
    for (const Standing& one : contest.standings) {
      if (one.is_strategy) show.add(to_json(setting, one, contest.standings));
    }
  }
}

void show_lines(std::istream& lines, Show& show) {
  for (std::string line; std::getline(lines, line);) {
    try {
      show.add(Json::parse(line));
    } catch (const Json::exception&) {
      throw Failure(fmt::format("this is not a result of peel bench allreduce: {}", line.substr(0, 80)));
    }
  }
}

void run(const DemoOptions& options) {
  Show show;
  if (options.results.empty()) {
    show_threads(show);
  } else if (options.results == kPipe) {
    show_lines(std::cin, show);
  } else {
    std::ifstream file(options.results);
    if (!file) throw Failure(fmt::format("cannot read {}; write it with peel bench allreduce --json", options.results));
    show_lines(file, show);
  }
  show.finish(options.html);
}

}  // namespace

void add_demo(CLI::App& app) {
  CLI::App* demo =
      app.add_subcommand("demo", "Four workers all-reduce gradients: time, bytes and exactness by density");
  const auto options = std::make_shared<DemoOptions>();
  demo->add_option("--results", options->results,
                   "Show these JSON lines of bench allreduce instead of measuring; - for standard input");
  demo->add_option("--html", options->html, "Also write a page with charts to this file");
  demo->callback([options] { run(*options); });
}

}  // namespace peel::cli
