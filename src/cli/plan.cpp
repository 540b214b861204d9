// peel plan: what an all-reduce would send and how long it would take, before anybody builds anything, by the model
// that the library chooses strategies with (peel/predict.h).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "cli/commands.h"
#include "cli/json.h"
#include "cli/numbers.h"
#include "cli/options.h"
#include "cli/sweep.h"
#include "cli/table.h"
#include "peel/predict.h"

namespace peel::cli {
namespace {

constexpr std::initializer_list<Strategy> kStrategies = {Strategy::packed, Strategy::sketch, Strategy::split,
                                                         Strategy::gather};

struct PlanCommand {
  std::uint64_t elements = 0;
  double density = 0;
  std::optional<double> own_density;
  std::uint32_t workers = 0;
  double bandwidth = 0;  // bits per second
  // What `peel bench allreduce` measures between hosts over TCP (bench/network/run), and on a core of a server.
  double latency_s = 150e-6;
  double copy_bytes_per_second = 10e9;
  ElementType type = ElementType::float32;
  std::optional<Strategy> strategy;
  Index index = Index::automatic;
  CellType cells = CellType::automatic;
  std::uint32_t grain = 1;
  std::string json;

  // Of one worker. Unless it is given, every worker has a support of its own, as `peel bench allreduce` draws them.
  [[nodiscard]] double own() const { return own_density.value_or(1 - std::pow(1 - density, 1.0 / workers)); }
};

struct Predictions {
  Prediction dense;
  std::vector<Prediction> choices;  // the fastest first

  [[nodiscard]] double speedup(const Prediction& one) const {
    return one.total_s == 0 ? 1 : dense.total_s / one.total_s;
  }
  // What the strategy auto takes, or what was asked for. A sketch rounds to a shared scale, so nobody gets it unasked.
  [[nodiscard]] const Prediction& best() const {
    const auto found = std::find_if(choices.begin(), choices.end(),
                                    [](const Prediction& one) { return one.strategy != Strategy::sketch; });
    return found != choices.end() ? *found : choices.front();
  }
  [[nodiscard]] bool pays() const { return best().total_s < dense.total_s; }
};

// The bandwidth at which a strategy is as fast as dense, in bits per second; it pays below. None: it pays on any link.
std::optional<double> pays_below(const Prediction& one, const Prediction& dense) {
  const double saved = static_cast<double>(dense.bytes_sent) - static_cast<double>(one.bytes_sent);
  const double spent = (one.total_s - one.wire_s) - (dense.total_s - dense.wire_s);
  if (spent <= 0 && saved >= 0) return std::nullopt;
  return spent <= 0 ? 0 : std::max(0.0, 8 * saved / spent);
}

Predictions predict_all(const PlanCommand& command) {
  // Non-zeros are taken to fill their grains, as rows of an embedding do.
  const auto items = [&](double density) {
    const double nonzeros = std::round(density * static_cast<double>(command.elements));
    return static_cast<std::uint64_t>(std::ceil(nonzeros / std::max(command.grain, 1U)));
  };
  std::vector<Prediction> choices = predict({.elements = command.elements,
                                             .type = command.type,
                                             .workers = command.workers,
                                             .grain = command.grain,
                                             .items = items(command.density),
                                             .own_items = items(std::min(command.own(), command.density)),
                                             .link = {.latency_s = command.latency_s,
                                                      .bytes_per_second = command.bandwidth / 8,
                                                      .copy_bytes_per_second = command.copy_bytes_per_second},
                                             .index = command.index,
                                             .cells = command.cells});
  const auto dense = std::find_if(choices.begin(), choices.end(),
                                  [](const Prediction& one) { return one.strategy == Strategy::dense; });
  Predictions all{.dense = *dense, .choices = {}};
  choices.erase(dense);
  for (const Prediction& one : choices) {
    if (!command.strategy || *command.strategy == one.strategy) all.choices.push_back(one);
  }
  return all;
}

bool has_message(const Prediction& one) { return one.strategy == Strategy::packed || one.strategy == Strategy::sketch; }

std::string show_bandwidth(double bits) {
  return bits >= 1e9 ? fmt::format("{:.3g} Gbit/s", bits / 1e9) : fmt::format("{:.3g} Mbit/s", bits / 1e6);
}

std::string verdict(const PlanCommand& command, const Predictions& all) {
  const Prediction& best = all.best();
  const std::optional<double> limit = pays_below(best, all.dense);
  if (command.workers == 1) return "It does not pay: a single worker has nothing to exchange.";
  if (all.pays()) {
    return fmt::format("It pays: {} is {:.2f} times as fast as dense, and pays {}.", name(best.strategy),
                       all.speedup(best), limit ? "below " + show_bandwidth(*limit) : "on any link");
  }
  if (best.bytes_sent >= all.dense.bytes_sent) {
    return "It does not pay: the messages are no smaller than the dense gradient. Send it as it is.";
  }
  return fmt::format(
      "It does not pay: coding takes {} and the wire saves {}. Send it dense, or on links below {} use {}.",
      show_seconds(best.codec_s), show_seconds(all.dense.wire_s - best.wire_s), show_bandwidth(limit.value_or(0)),
      name(best.strategy));
}

void print(const PlanCommand& command, const Predictions& all) {
  constexpr auto kLeft = Column::Side::left;
  const Table table{{"strategy", 8, kLeft}, {"index", 6, kLeft}, {"sent", 7},  {"/dense", 7},  {"wire", 9},
                    {"latency", 8},         {"codec", 8},        {"total", 9}, {"speed-up", 8}};
  const auto row = [&](const Prediction& one) {
    return table.row({name(one.strategy),
                      has_message(one) ? name(one.plan.index()) : "",
                      show_bytes(one.bytes_sent),
                      show_ratio(one.bytes_sent, all.dense.bytes_sent),
                      show_seconds(one.wire_s),
                      show_seconds(one.latency_s),
                      show_seconds(one.codec_s),
                      show_seconds(one.total_s),
                      {fmt::format("{:.2f}", all.speedup(one)), all.speedup(one) > 1 ? Ink::good : Ink::plain}});
  };
  std::string text = wrapped(fmt::format(
      "{} {}, {} of them non-zero on some worker, {} on each; all-reduce of {} workers at {}",
      show_count(command.elements), name(command.type), show_percent(command.density),
      show_percent(std::min(command.own(), command.density)), command.workers, show_bandwidth(command.bandwidth)));
  text += "\n" + table.heading() + row(all.dense);
  for (const Prediction& one : all.choices) text += row(one);
  fmt::print("{}\n{}", text, inked(all.pays() ? Ink::good : Ink::plain, wrapped(verdict(command, all))));
}

Json json_of(const Prediction& one, const Predictions& all) {
  const std::optional<double> limit = pays_below(one, all.dense);
  Json json{{"strategy", name(one.strategy)},
            {"bytes_sent", one.bytes_sent},
            {"rounds", one.rounds},
            {"wire_s", one.wire_s},
            {"latency_s", one.latency_s},
            {"codec_s", one.codec_s},
            {"total_s", one.total_s},
            {"speedup", all.speedup(one)},
            {"pays_below_bit_s", limit ? Json(*limit) : Json()}};
  if (!has_message(one)) return json;
  json.update({{"cells", name(one.plan.cells())},
               {"index", name(one.plan.index())},
               {"items", one.plan.expected_items()},
               {"message_bytes", one.plan.message_bytes()},
               {"index_bytes", one.plan.index_bytes()},
               {"payload_bytes", one.plan.payload_bytes()},
               {"lower_bound_bytes", one.plan.lower_bound_bytes()}});
  return json;
}

Json json_of(const PlanCommand& command, const Predictions& all) {
  Json choices = Json::array();
  for (const Prediction& one : all.choices) choices.push_back(json_of(one, all));
  return {{"elements", command.elements},
          {"type", name(command.type)},
          {"density", command.density},
          {"own_density", std::min(command.own(), command.density)},
          {"grain", command.grain},
          {"workers", command.workers},
          {"bandwidth_bit_s", command.bandwidth},
          {"latency_s", command.latency_s},
          {"copy_bytes_s", command.copy_bytes_per_second},
          {"dense_bytes", all.dense.plan.dense_bytes()},
          {"dense_s", all.dense.total_s},
          {"choices", choices},
          {"chosen", all.pays() ? name(all.best().strategy) : name(Strategy::dense)},
          {"pays", all.pays()},
          {"verdict", verdict(command, all)}};
}

void run_plan(const PlanCommand& command) {
  if (command.index == Index::list) {
    throw CLI::ValidationError("a list does not combine by OR, so no all-reduce can send it; use bitmap or bloom");
  }
  const Predictions all = predict_all(command);
  if (command.json.empty()) {
    print(command, all);
  } else {
    write_json_lines(command.json, {json_of(command, all)});
  }
}

}  // namespace

void add_plan(CLI::App& app) {
  CLI::App* command = app.add_subcommand("plan", "Predict sizes and speed-up against a dense all-reduce");
  const auto options = std::make_shared<PlanCommand>();
  add_parsed(*command, "--elements", options->elements, parse_count, "Elements of the gradient")->required();
  add_parsed(*command, "--density", options->density, parse_share, "Share of elements non-zero on some worker")
      ->required();
  add_parsed(*command, "--own-density", options->own_density, parse_share,
             "Share of elements non-zero on one worker [as if each had a support of its own]");
  command->add_option("--workers", options->workers, "Workers")
      ->required()
      ->check(CLI::Range(std::uint64_t{1}, Plan::kMostWorkers))
      ->type_name("W");
  add_parsed(*command, "--bandwidth", options->bandwidth, parse_bandwidth, "Of every worker's link: 10gbit, 1e9")
      ->required();
  add_parsed(
      *command, "--latency", options->latency_s, [](const std::string& text) { return 1e-6 * parse_positive(text); },
      "Of a collective of a few bytes, in microseconds [150]");
  add_parsed(
      *command, "--copy-speed", options->copy_bytes_per_second,
      [](const std::string& text) { return 1e9 * parse_positive(text); },
      "Of a worker's memory, in GB/s; codec times are multiples of it [10]");
  add_parsed(*command, "--type", options->type, parse_element_type, "Element type [float32]")
      ->type_name(one_of(kElementTypes));
  add_parsed(
      *command, "--strategy", options->strategy,
      [](const std::string& text) { return parse_name(text, kStrategies, "--strategy"); }, "Only this one [all]")
      ->type_name(one_of(kStrategies));
  add_parsed(*command, "--index", options->index, parse_index, "Of packed and sketch [auto]")
      ->type_name("{auto,bitmap,bloom}");
  add_parsed(*command, "--cells", options->cells, parse_cells, "How values travel [auto]")->type_name(one_of(kCells));
  add_parsed(*command, "--grain", options->grain, parse_grain_size,
             "Elements per item: 1, 2, 4 ... 1024; non-zeros are taken to fill them [1]")
      ->type_name("G");
  add_json_option(*command, options->json);
  command->callback([options] { run_plan(*options); });
}

}  // namespace peel::cli
