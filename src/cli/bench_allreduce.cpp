// peel bench allreduce: strategies against the transport's own all-reduce, on threads of this process, on processes
// under mpirun, or on GPUs. Every sum is verified.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/contest.h"
#include "cli/contest_report.h"
#include "cli/mpi_workers.h"
#include "cli/nccl_workers.h"
#include "cli/numbers.h"
#include "cli/parallel.h"
#include "cli/report_sink.h"
#include "cli/sweep.h"
#include "cli/switch_secret.h"
#include "cli/switch_workers.h"
#include "cli/thread_workers.h"

namespace peel::cli {
namespace {

// As written; the plural ones may be lists.
struct Words {
  std::string transport = "inprocess";
  std::string workers;
  std::string elements = "2^24";
  std::string density = "0.01";
  std::string pattern = "uniform";
  std::string type = "float32";
  std::string overlap = "independent";
  std::string values = "exact";
  std::string view = "dense";
  std::string memory = "auto";
  std::string strategy = "auto";
  std::string baseline;
  std::string grain = "auto";
  std::string cells = "auto";
  std::string link = "measured";
  std::string rate;
  std::string drain_bytes = "0";
  std::string chunk_bytes = "0";
  double timeout = 60;
  unsigned threads = 1;
  unsigned warmup = 3;
  unsigned repeat = 7;
  std::uint64_t seed = 1;
  std::string json;
  SwitchAccess access = {};
};

constexpr std::initializer_list<Strategy> kStrategies = {Strategy::automatic, Strategy::dense, Strategy::packed,
                                                         Strategy::sketch,    Strategy::split, Strategy::gather};
constexpr std::initializer_list<Sharing> kOverlaps = {Sharing::independent, Sharing::full};
constexpr std::initializer_list<Values> kValues = {Values::exact, Values::real};

constexpr std::uint32_t kWorkers = 4;  // threads, unless told otherwise

Strategy parse_strategy(std::string_view text) { return parse_name(text, kStrategies, "--strategy"); }

std::uint32_t parse_worker_count(std::string_view text) {
  const std::uint32_t workers = parse_small(text);
  if (workers == 0) throw CLI::ValidationError("--workers must be at least 1");
  return workers;
}

// 0: found from the sums.
std::uint32_t parse_reduction_grain(std::string_view text) {
  if (text == "auto") return 0;
  return parse_grain_size(text);
}

std::optional<LinkFacts> parse_link(std::string_view text) {
  if (text == "measured") return std::nullopt;
  return LinkFacts{.bytes_per_second = parse_bandwidth(text) / 8};
}

// Over NCCL arrays are where gradients are: on the GPU. Rows are not, since the library takes them from the host only.
Memory parse_memory(const Words& words, View view) {
  const bool possible = words.transport == "nccl" && view == View::dense;
  if (words.memory == "auto") return possible ? Memory::device : Memory::host;
  const Memory memory = parse_name(words.memory, {Memory::host, Memory::device}, "--memory");
  if (memory == Memory::host || possible) return memory;
  throw CLI::ValidationError(view == View::sparse
                                 ? "rows are summed in host memory only; use --memory host, or --view dense"
                                 : fmt::format("--transport {} reaches host memory only; use --memory host, or "
                                               "--transport nccl",
                                               words.transport));
}

struct Sweep {
  std::vector<Pattern> patterns;
  std::vector<std::uint64_t> elements;
  std::vector<double> densities;
  std::vector<ElementType> types;
  std::vector<Sharing> overlaps;
  std::vector<Values> values;
  std::vector<std::uint32_t> workers;
  std::uint64_t seed = 1;
  ContestOptions options;
};

Sweep parse(const Words& words) {
  const auto sharing = [](std::string_view text) { return parse_name(text, kOverlaps, "--overlap"); };
  const auto values = [](std::string_view text) { return parse_name(text, kValues, "--values"); };
  Sweep sweep{.patterns = parse_patterns(words.pattern),
              .elements = parse_list(words.elements, parse_count),
              .densities = parse_list(words.density, parse_share),
              .types = parse_list(words.type, parse_element_type),
              .overlaps = parse_list(words.overlap, sharing),
              .values = parse_list(words.values, values),
              .workers = {},
              .seed = words.seed,
              .options = {}};
  if (!words.workers.empty()) sweep.workers = parse_list(words.workers, parse_worker_count);
  ContestOptions& options = sweep.options;
  options.view = parse_name(words.view, kViews, "--view");
  options.memory = parse_memory(words, options.view);
  options.strategies = parse_list(words.strategy, parse_strategy);
  options.warmup = words.warmup;
  options.repeat = words.repeat;
  options.drain_bytes = parse_count(words.drain_bytes);
  options.state.grain = parse_reduction_grain(words.grain);
  options.state.cells = parse_cells(words.cells);
  options.state.link = parse_link(words.link);
  options.state.chunk_bytes = parse_count(words.chunk_bytes);
  options.state.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(words.timeout * 1e3));
  options.state.execution.threads = words.threads;
  options.state.seed = words.seed;
  return sweep;
}

struct Case {
  Pattern pattern;
  GradientOptions gradients;
};

// Files have the size, density, sharing and values that they have: for them those lists are not swept.
std::vector<Case> cases_of(const Sweep& sweep, std::uint32_t workers) {
  std::vector<Case> all;
  for (const Pattern& pattern : sweep.patterns) {
    std::vector<GradientOptions> variants(1);
    variants[0].workers = workers;
    variants[0].seed = sweep.seed;
    const auto multiply = [&variants](const auto& list, auto set) {
      std::vector<GradientOptions> more;
      for (const GradientOptions& one : variants) {
        for (const auto& value : list) set(more.emplace_back(one), value);
      }
      variants.swap(more);
    };
    if (pattern.kind == Pattern::Kind::npy && workers > pattern.files.size()) {
      throw CLI::ValidationError(
          fmt::format("{} workers need as many files after npy:, which names {}", workers, pattern.files.size()));
    }
    if (pattern.kind != Pattern::Kind::npy) {
      multiply(sweep.elements, [](auto& o, std::uint64_t v) { o.elements = v; });
      multiply(sweep.densities, [](auto& o, double v) { o.density = v; });
      multiply(sweep.overlaps, [](auto& o, Sharing v) { o.sharing = v; });
      multiply(sweep.values, [](auto& o, Values v) { o.values = v; });
    }
    multiply(sweep.types, [](auto& o, ElementType v) { o.type = v; });
    for (const GradientOptions& options : variants) all.push_back({pattern, options});
  }
  return all;
}

// A sparse view has the grain of its rows.
ContestOptions options_for(const Case& one, const Gradients& gradients, ContestOptions options) {
  if (options.view == View::dense) return options;
  if (options.state.grain == 0) options.state.grain = parse_reduction_grain(fmt::format("{}", one.pattern.length));
  options.state.elements = gradients.elements();
  return options;
}

std::vector<Baseline> chosen(std::vector<Baseline> baselines, const std::string& names) {
  if (names.empty()) return baselines;
  const auto wanted = parse_list(names, [](std::string_view text) { return std::string(text); });
  std::erase_if(baselines,
                [&](const Baseline& one) { return std::find(wanted.begin(), wanted.end(), one.name) == wanted.end(); });
  return baselines;
}

// What a contest takes grows with its elements; of files they are not known yet.
double work_of(const Case& one) { return static_cast<double>(std::max<std::uint64_t>(1, one.gradients.elements)); }

// What goes wrong is counted, and told when everything was measured.
class Results {
 public:
  Results(const std::string& json, const Sweep& sweep) : sink_(json, contest_heading()) {
    double work = 0;
    for (const Case& one : cases_of(sweep, 1)) work += work_of(one);
    progress_.expect(work * static_cast<double>(std::max<std::size_t>(1, sweep.workers.size())));
  }

  void begin(const Case& one) {
    progress_.step(fmt::format("{}, {} workers", one.pattern.text, one.gradients.workers));
  }
  ContestOptions watch(const Case& one, ContestOptions options) {
    options.progress = &progress_;
    options.work = work_of(one);
    return options;
  }

  void add(const ContestSetting& setting, const std::vector<Standing>& standings) {
    std::string above = contest_case(setting, standings);
    for (const Standing& one : standings) {
      if (one.wrong != 0 && wrong_++ == 0) first_ = fmt::format("{} elements of the sums by {}", one.wrong, one.name);
      if (!one.is_strategy) continue;
      progress_.clear();
      sink_.add(above + contest_row(setting, one, standings), to_json(setting, one, standings));
      above.clear();
    }
  }
  void finish() {
    sink_.finish();
    if (wrong_ != 0) throw Failure(fmt::format("{} are wrong, and {} more contenders' are", first_, wrong_ - 1));
  }

 private:
  ReportSink sink_;
  Progress progress_;
  std::string first_;        // of those that were wrong
  std::uint64_t wrong_ = 0;  // contenders, baselines among them
};

void run_inprocess(const Words& words, const Sweep& sweep) {
  const double rate_bits = words.rate.empty() ? 0 : parse_bandwidth(words.rate);
  Results results(words.json, sweep);
  const std::vector<std::uint32_t> counts = sweep.workers.empty() ? std::vector{kWorkers} : sweep.workers;
  for (const std::uint32_t workers : counts) {
    for (const Case& one : cases_of(sweep, workers)) {
      results.begin(one);
      const Gradients gradients(one.pattern, one.gradients);
      const ContestOptions options = results.watch(one, options_for(one, gradients, sweep.options));
      const ThreadContest contest = hold_on_threads(gradients, options, {.bytes_per_second = rate_bits / 8});
      results.add({"inprocess", one.pattern, &gradients, one.gradients, &options, contest.link, rate_bits},
                  contest.standings);
    }
  }
  results.finish();
}

void run_nccl(const Words& words, const Sweep& sweep) {
  Results results(words.json, sweep);
  const std::vector<std::uint32_t> counts = sweep.workers.empty() ? std::vector{kWorkers} : sweep.workers;
  for (const std::uint32_t count : counts) {
    NcclWorkers workers(count);
    for (const Case& one : cases_of(sweep, count)) {
      results.begin(one);
      const Gradients gradients(one.pattern, one.gradients);
      const ContestOptions options = results.watch(one, options_for(one, gradients, sweep.options));
      const KnownSum known = known_sum(gradients, options, all_cores());
      std::vector<Entrant> entrants = options.memory == Memory::device
                                          ? workers.device_entrants(gradients, known)
                                          : host_entrants(workers.communicators(), gradients, options);
      const ThreadContest contest = hold_on_threads(std::move(entrants), known, options);
      results.add({"nccl", one.pattern, &gradients, one.gradients, &options, contest.link}, contest.standings);
    }
  }
  results.finish();
}

void run_switch(const Words& words, const Sweep& sweep) {
  Results results(words.json, sweep);
  const std::vector<std::uint32_t> counts = sweep.workers.empty() ? std::vector{kWorkers} : sweep.workers;
  for (const std::uint32_t count : counts) {
    for (const Case& one : cases_of(sweep, count)) {
      results.begin(one);
      SwitchThreads workers(count, words.access);
      const Gradients gradients(one.pattern, one.gradients);
      const ContestOptions options = results.watch(one, options_for(one, gradients, sweep.options));
      const KnownSum known = known_sum(gradients, options, all_cores());
      const ThreadContest contest = hold_on_threads(workers.entrants(gradients, options), known, options);
      results.add({"switch", one.pattern, &gradients, one.gradients, &options, contest.link}, contest.standings);
    }
  }
  results.finish();
}

void check_workers(const Sweep& sweep, unsigned processes) {
  if (sweep.workers.empty() || (sweep.workers.size() == 1 && sweep.workers[0] == processes)) return;
  throw Failure(
      fmt::format("under mpirun every process is a worker, and there are {}; leave out --workers, and "
                  "start as many with mpirun -np",
                  processes));
}

void run_mpi(const Words& words, const Sweep& sweep) {
  std::optional<Results> results;  // of rank 0
  {
    MpiWorkers workers;
    const auto through = words.transport == "switch" ? join_switch(workers.communicator(), words.access) : nullptr;
    Communicator& communicator = through ? *through : workers.communicator();
    check_workers(sweep, communicator.size());
    if (communicator.rank() == 0) results.emplace(words.json, sweep);
    const LinkFacts link = agree_on_link(communicator, sweep.options.state);
    for (const Case& one : cases_of(sweep, communicator.size())) {
      if (results) results->begin(one);
      const Gradients gradients(one.pattern, one.gradients);
      ContestOptions options = options_for(one, gradients, sweep.options);
      if (results) options = results->watch(one, options);
      const KnownSum known = known_sum(gradients, options);
      const auto baselines = chosen(workers.baselines(options.view, gradients.type()), words.baseline);
      const std::unique_ptr<Summand> summand = host_summand(gradients, communicator.rank(), options);
      const std::vector<Standing> standings = hold_contest(communicator, *summand, known, baselines, options);
      if (results) results->add({words.transport, one.pattern, &gradients, one.gradients, &options, link}, standings);
    }
  }
  if (results) results->finish();
}

void run(const Words& words) {
  const Sweep sweep = parse(words);
  if (!words.rate.empty() && words.transport != "inprocess") {
    throw CLI::ValidationError(fmt::format(
        "--rate limits the links of threads, and {} has links of its own; see bench/network/run", words.transport));
  }
  if (words.transport == "inprocess") return run_inprocess(words, sweep);
  if (words.transport == "mpi") return run_mpi(words, sweep);
  if (words.transport == "switch") return under_mpirun() ? run_mpi(words, sweep) : run_switch(words, sweep);
  run_nccl(words, sweep);
}

void add_gradient_options(CLI::App& app, Words& words) {
  app.add_option("--workers", words.workers, "Threads that are workers (default 4); with mpi, what mpirun started");
  app.add_option("--elements", words.elements, "Elements of the array, as in 16777216 or 2^24");
  app.add_option("--density", words.density, "Non-zero share of the union of all workers, as in 0.01 or 1%");
  app.add_option("--pattern", words.pattern, "uniform, runs:L, rows:L (Zipf), stride:S, or npy:PATH[,PATH...]");
  app.add_option("--type", words.type, "Of the elements")->type_name(one_of(kElementTypes));
  app.add_option("--overlap", words.overlap,
                 "independent: every worker draws its own support, and the union has the density; full: all the same")
      ->type_name(one_of(kOverlaps));
  app.add_option("--values", words.values,
                 "exact: their sums are, in any order; real: as gradients have, 1.4e-14 to 0.125 in magnitude")
      ->type_name(one_of(kValues));
  app.add_option("--view", words.view, "Arrays, or rows of a pattern rows:L")->type_name(one_of(kViews));
  app.add_option("--memory", words.memory, "device only with nccl; auto: device with nccl and dense")
      ->type_name("{auto,host,device}");
  app.add_option("--seed", words.seed, "Of the gradients and of the plans");
}

void add_access_options(CLI::App& app, SwitchAccess& access) {
  app.add_option("--switch", access.address, "Address of the switch, as in 10.0.0.1:7077");
  app.add_option("--job", access.job, "Name of the job at the switch");
  app.add_option("--mtu", access.mtu, "Of packets to the switch; 0: what the route has");
  add_secret_option(app, access.secret_file);
}

void add_contest_options(CLI::App& app, Words& words) {
  app.add_option("--strategy", words.strategy, "How they sum")->type_name(one_of(kStrategies));
  app.add_option("--baseline", words.baseline, "Compare only with these")
      ->type_name("{mpi-default,mpi-ring,allgatherv}");
  app.add_option("--grain", words.grain, "Elements per item: auto, or a power of two from 1 to 1024");
  app.add_option("--cells", words.cells, "How values travel; native only with packed")->type_name(one_of(kCells));
  app.add_option("--chunk-bytes", words.chunk_bytes, "Cut arrays into chunks of this size; 0: as it sees fit");
  app.add_option("--link", words.link, "What a worker sends in a second: measured, or as in 1gbit");
  app.add_option("--rate", words.rate,
                 "Limit every worker's link to this in each direction, in user space, as in 200mbit; inprocess only");
  app.add_option("--drain-bytes", words.drain_bytes,
                 "What every worker sends before each sum, so that a shaped link has no burst saved up");
  app.add_option("--timeout", words.timeout, "Seconds after which a worker that does not answer is an error")
      ->check(CLI::Range(0.001, 1e6));
  app.add_option("--threads", words.threads, "Threads of each worker's codec; 0: all cores");
  app.add_option("--warmup", words.warmup, "Rounds before those that count")->check(CLI::Range(0, 1000));
  app.add_option("--repeat", words.repeat, "Times are medians of this many rounds")->check(CLI::Range(1, 1000));
  add_json_option(app, words.json);
}

}  // namespace

void add_bench_allreduce(CLI::App& bench) {
  CLI::App* app = bench.add_subcommand("allreduce",
                                       "Sum gradients of several workers and verify; lists such as packed,split sweep");
  const auto words = std::make_shared<Words>();
  app->option_defaults()->always_capture_default();
  app->add_option("--transport", words->transport,
                  "inprocess (threads), mpi (start it with mpirun), nccl, or switch (threads; under mpirun, processes)")
      ->check(CLI::IsMember({"inprocess", "mpi", "nccl", "switch"}));
  add_gradient_options(*app, *words);
  add_contest_options(*app, *words);
  add_access_options(*app, words->access);
  app->callback([words] { run(*words); });
}

}  // namespace peel::cli
