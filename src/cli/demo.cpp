// peel demo: four workers all-reduce gradients of several densities; a table, and on demand a page with charts. Workers
// are threads of this process on links that are limited in user space, or whoever wrote the results that it is given:
// scripts/demo runs them on a network.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "cli/commands.h"
#include "cli/contest_report.h"
#include "cli/demo_page.h"
#include "cli/demo_story.h"
#include "cli/files.h"
#include "cli/numbers.h"
#include "cli/progress.h"
#include "cli/terminal.h"
#include "cli/thread_workers.h"

namespace peel::cli {
namespace {

struct DemoOptions {
  std::string results;
  std::string html;
  std::string rate = "200mbit";
  std::string elements = "2^20";
  std::uint64_t expect = 0;
};

constexpr std::uint32_t kWorkers = 4;

struct Shape {
  const char* pattern;
  double density;
};
constexpr Shape kShapes[] = {{"uniform", 0.001}, {"uniform", 0.01}, {"uniform", 0.1},
                             {"uniform", 0.3},   {"uniform", 0.9},  {"rows:64", 0.035}};

constexpr std::string_view kRow = "  {:<14} {:>9} {:>9} {:>8} {:>9}  {}\n";

// While it lives, a terminal says what is being waited for, and how long that and all the rest take.
class Waiting {
 public:
  Waiting(Progress& progress, const std::string& what)
      : thread_([this, &progress, what](const std::stop_token& stop) {
          std::unique_lock lock(mutex_);
          for (int seconds = 0; !stop.stop_requested(); ++seconds) {
            progress.step(fmt::format("{} ({} s)", what, seconds));
            ended_.wait_for(lock, stop, std::chrono::seconds(1), [] { return false; });
          }
          progress.clear();
        }) {}

 private:
  std::mutex mutex_;
  std::condition_variable_any ended_;
  std::jthread thread_;  // the last member: it ends before what it uses
};

// Prints results as they come, and keeps them for the end.
class Show {
 public:
  explicit Show(std::uint64_t expected) : expected_(expected) { progress_.expect(static_cast<double>(expected)); }

  // For the next result, while `waiting` lives.
  void wait(std::optional<Waiting>& waiting) {
    waiting.emplace(progress_, expected_ == 0 ? fmt::format("measuring; {} results so far", results_.size())
                                              : fmt::format("measuring; {} of {} results", results_.size(), expected_));
  }

  void add(const Json& report) {
    const DemoResult one = demo_result(report);
    if (results_.empty()) {
      first_ = report;
      fmt::print(fmt::runtime(kRow), "strategy", "time", "speed-up", "bytes", "of dense", "every element");
    }
    if (results_.empty() || title_of(results_.back()) != title_of(one)) {
      fmt::print("{} (dense: {}, {} bytes)\n", title_of(one), show_seconds(one.baseline_seconds),
                 show_bytes(static_cast<std::uint64_t>(one.dense_bytes)));
    }
    fmt::print(fmt::runtime(kRow), strategy_of(one), show_seconds(one.seconds), fmt::format("{:.1f}x", one.speedup()),
               show_bytes(static_cast<std::uint64_t>(one.bytes)), show_percent(one.bytes / one.dense_bytes),
               verdict_of(one));
    std::fflush(stdout);
    results_.push_back(one);
    progress_.advance(1);
    progress_.clear();
  }

  void finish(const std::string& html) const {
    if (results_.empty()) throw Failure("there are no results to show; see what was said before");
    const DemoStory story = tell_story(first_, results_);
    print(story);
    if (!html.empty()) {
      const std::string page = demo_page(story, results_);
      Output output(html, {.force = true});
      output.write(std::as_bytes(std::span(page)));
      output.commit();
      fmt::print("\nThe same with charts: {}\n", html);
    }
    refuse_bad();
  }

 private:
  static void print(const DemoStory& story) {
    fmt::print("\n");
    fmt::print("{}", wrapped(story.headline));
    fmt::print("\nWhat was measured\n");
    for (const std::string& sentence : story.setting) fmt::print("  {}", wrapped(sentence, 2));
    fmt::print("\nWords\n");
    for (const Term& term : story.words) fmt::print("  {:<15} {}", term.word, wrapped(term.meaning, 18));
    fmt::print("\nNext\n");
    for (const Term& step : story.next) fmt::print("  {}\n      {}\n", step.word, step.meaning);
  }

  void refuse_bad() const {
    std::uint64_t bad = 0;
    for (const DemoResult& one : results_) {
      bad += one.wrong + one.lost;
      if (!one.beats_link()) continue;
      throw Failure(
          fmt::format("{}, {}: less time than the link takes for the bytes; is the limit of the links "
                      "working? Measure again on a machine with less to do",
                      title_of(one), strategy_of(one)));
    }
    if (bad != 0) throw Failure(fmt::format("{} elements of the sums are wrong or lost", bad));
  }

  std::uint64_t expected_;  // results; 0: nobody knows
  Progress progress_;
  Json first_;
  std::vector<DemoResult> results_;
};

void show_threads(const DemoOptions& options) {
  const double rate_bits = parse_bandwidth(options.rate);
  const ContestOptions contest{.strategies = {Strategy::packed, Strategy::sketch, Strategy::split, Strategy::automatic},
                               .warmup = 2,
                               .repeat = 3};
  Show show(std::size(kShapes) * contest.strategies.size());
  for (const Shape& shape : kShapes) {
    std::optional<Waiting> waiting;
    show.wait(waiting);
    const Pattern pattern = parse_patterns(shape.pattern).front();
    const GradientOptions drawn{.elements = parse_count(options.elements),
                                .density = shape.density,
                                .workers = kWorkers,
                                .sharing = Sharing::independent,
                                .values = Values::real};
    const Gradients gradients(pattern, drawn);
    const ThreadContest held = hold_on_threads(gradients, contest, {.bytes_per_second = rate_bits / 8});
    const ContestSetting setting{"inprocess", pattern, &gradients, drawn, &contest, held.link, rate_bits};
    waiting.reset();
    for (const Standing& one : held.standings) {
      if (one.is_strategy) show.add(to_json(setting, one, held.standings));
    }
  }
  show.finish(options.html);
}

void show_lines(std::istream& lines, const DemoOptions& options) {
  Show show(options.expect);
  std::string line;
  const auto next = [&] {
    std::optional<Waiting> waiting;
    show.wait(waiting);
    return static_cast<bool>(std::getline(lines, line));
  };
  while (next()) {
    try {
      show.add(Json::parse(line));
    } catch (const Json::exception&) {
      throw Failure(fmt::format("this is not a result of peel bench allreduce: {}", line.substr(0, 80)));
    }
  }
  show.finish(options.html);
}

void run(const DemoOptions& options) {
  if (options.results.empty()) {
    show_threads(options);
  } else if (options.results == kPipe) {
    show_lines(std::cin, options);
  } else {
    std::ifstream file(options.results);
    if (!file) throw Failure(fmt::format("cannot read {}; write it with peel bench allreduce --json", options.results));
    show_lines(file, options);
  }
}

}  // namespace

void add_demo(CLI::App& app) {
  CLI::App* demo =
      app.add_subcommand("demo", "Four workers all-reduce gradients: time, bytes and exactness by density");
  const auto options = std::make_shared<DemoOptions>();
  demo->add_option("--results", options->results,
                   "Show these JSON lines of bench allreduce instead of measuring; - for standard input");
  demo->add_option("--expect", options->expect, "With --results: how many there will be, for those who wait");
  demo->add_option("--html", options->html, "Also write a page with charts to this file");
  demo->add_option("--rate", options->rate, "Links between the threads carry this, limited in user space")
      ->capture_default_str();
  demo->add_option("--elements", options->elements, "Elements of the gradients")->capture_default_str();
  demo->callback([options] { run(*options); });
}

}  // namespace peel::cli
