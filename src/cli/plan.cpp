// peel plan: what an all-reduce would send and how long it would take, before anybody builds anything. A ring moves
// 2 (W-1)/W times the message over every link; the codec works before and after.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "cli/commands.h"
#include "cli/json.h"
#include "cli/numbers.h"
#include "cli/options.h"
#include "peel/plan.h"

namespace peel::cli {
namespace {

// Encode and decode together, on one core with AVX-512 that copies 13 GB/s. Defaults to plan with: `peel bench codec`
// measures them on a given machine, and --codec-speed replaces them all.
constexpr double kPackedScan = 13e9;     // bytes of the dense array per second
constexpr double kPackedPayload = 10e9;  // bytes of the payload per second
constexpr double kSketchScan = 9e9;
constexpr double kSketchPayload = 5e9;
constexpr double kSketchItem = 18e-9;  // seconds to hash, add and peel one item
constexpr double kBloomItem = 0.7e-9;  // reading a filter out tests every item, zero or not

struct PlanCommand {
  std::uint64_t elements = 0;
  double density = 0;
  std::uint32_t workers = 0;
  double bandwidth = 0;  // bits per second
  ElementType type = ElementType::float32;
  std::optional<Codec> codec;
  std::optional<Index> index;
  CellType cells = CellType::automatic;
  std::uint32_t grain = 1;
  std::optional<double> codec_speed;  // bytes of the dense array per second
  std::string json;
};

struct Prediction {
  Plan plan;
  double wire_s = 0;
  double codec_s = 0;
  double speedup = 0;           // against dense
  double pays_below_bit_s = 0;  // the bandwidth at which it is as fast as dense

  [[nodiscard]] double total_s() const { return wire_s + codec_s; }
};

struct Predictions {
  double dense_s = 0;
  std::uint64_t dense_bytes = 0;
  std::vector<Prediction> choices;

  [[nodiscard]] const Prediction& best() const {
    return *std::min_element(choices.begin(), choices.end(),
                             [](const Prediction& a, const Prediction& b) { return a.total_s() < b.total_s(); });
  }
  [[nodiscard]] bool pays() const { return best().total_s() < dense_s; }
};

double ring_bits(std::uint64_t bytes, std::uint32_t workers) {
  return 2.0 * (workers - 1) / workers * 8 * static_cast<double>(bytes);
}

double codec_seconds(const PlanCommand& command, const Plan& plan) {
  const auto dense = static_cast<double>(plan.dense_bytes());
  const auto payload = static_cast<double>(plan.payload_bytes());
  if (command.codec_speed) return dense / *command.codec_speed;
  const double filter = plan.index() == Index::bloom ? static_cast<double>(plan.items()) * kBloomItem : 0;
  if (plan.codec() == Codec::packed) return dense / kPackedScan + payload / kPackedPayload + filter;
  const double peeling = static_cast<double>(plan.expected_items()) * kSketchItem;
  return dense / kSketchScan + payload / kSketchPayload + peeling + filter;
}

Prediction predict(const PlanCommand& command, Codec codec, Index index) {
  // Non-zeros are taken to fill their grains, as rows of an embedding do.
  const auto nonzeros =
      static_cast<std::uint64_t>(std::llround(command.density * static_cast<double>(command.elements)));
  Prediction result{
      .plan = Plan::make(
          {.elements = command.elements,
           .type = command.type,
           .expected_items = (nonzeros + command.grain - 1) / command.grain,
           .workers = command.workers,
           .codec = codec,
           .cells = codec == Codec::sketch && command.cells == CellType::native ? CellType::automatic : command.cells,
           .grain = command.grain,
           .index = index})};
  const Plan& plan = result.plan;
  const double dense_bits = ring_bits(plan.dense_bytes(), command.workers);
  const double message_bits = ring_bits(plan.message_bytes(), command.workers);
  result.wire_s = message_bits / command.bandwidth;
  result.codec_s = codec_seconds(command, plan);
  result.speedup = result.total_s() == 0 ? 1 : dense_bits / command.bandwidth / result.total_s();
  result.pays_below_bit_s = std::max(0.0, dense_bits - message_bits) / std::max(result.codec_s, 1e-12);
  return result;
}

Predictions predict_all(const PlanCommand& command) {
  Predictions all;
  for (const Codec codec : {Codec::packed, Codec::sketch}) {
    if (command.codec && *command.codec != codec) continue;
    for (const Index index : {Index::bitmap, Index::bloom}) {
      if (!command.index || *command.index == index) all.choices.push_back(predict(command, codec, index));
    }
    if (command.index == Index::automatic) all.choices.push_back(predict(command, codec, Index::automatic));
  }
  all.dense_bytes = all.choices.front().plan.dense_bytes();
  all.dense_s = ring_bits(all.dense_bytes, command.workers) / command.bandwidth;
  return all;
}

std::string show_bandwidth(double bits) {
  return bits >= 1e9 ? fmt::format("{:.3g} Gbit/s", bits / 1e9) : fmt::format("{:.3g} Mbit/s", bits / 1e6);
}

std::string verdict(const PlanCommand& command, const Predictions& all) {
  const Prediction& best = all.best();
  const std::string choice = fmt::format("{} with a {} index", name(best.plan.codec()), name(best.plan.index()));
  if (command.workers == 1) return "It does not pay: a single worker has nothing to exchange.";
  if (all.pays()) {
    return fmt::format("It pays: {} is {:.2f} times as fast as dense, and pays below {}.", choice, best.speedup,
                       show_bandwidth(best.pays_below_bit_s));
  }
  if (best.plan.message_bytes() >= all.dense_bytes) {
    return "It does not pay: the messages are no smaller than the dense gradient. Send it as it is.";
  }
  return fmt::format(
      "It does not pay: the codec takes {} and the wire saves {}. Send it dense, or on links below {} use {}.",
      show_seconds(best.codec_s), show_seconds(all.dense_s - best.wire_s), show_bandwidth(best.pays_below_bit_s),
      choice);
}

void print(const PlanCommand& command, const Predictions& all) {
  fmt::print("{} {}, {} of them non-zero on some worker; ring all-reduce of {} workers at {}\n\n",
             show_count(command.elements), name(command.type), show_percent(command.density), command.workers,
             show_bandwidth(command.bandwidth));
  constexpr auto kRow = "{:<7} {:<7} {:>5}  {:<6} {:>8} {:>9} {:>9} {:>10} {:>10} {:>10} {:>8}\n";
  fmt::print(kRow, "codec", "cells", "grain", "index", "bytes", "of dense", "of bound", "wire", "codec time", "total",
             "speed-up");
  fmt::print(kRow, "dense", "", "", "", show_bytes(all.dense_bytes), "100%", "", show_seconds(all.dense_s), "",
             show_seconds(all.dense_s), "1.00");
  for (const Prediction& p : all.choices) {
    fmt::print(kRow, name(p.plan.codec()), name(p.plan.cells()), p.plan.grain(), name(p.plan.index()),
               show_bytes(p.plan.message_bytes()), show_ratio(p.plan.message_bytes(), all.dense_bytes),
               show_ratio(p.plan.message_bytes(), p.plan.lower_bound_bytes()), show_seconds(p.wire_s),
               show_seconds(p.codec_s), show_seconds(p.total_s()), fmt::format("{:.2f}", p.speedup));
  }
  fmt::print("\n{}\n", verdict(command, all));
}

Json json_of(const Prediction& p) {
  return {{"codec", name(p.plan.codec())},
          {"cells", name(p.plan.cells())},
          {"index", name(p.plan.index())},
          {"grain", p.plan.grain()},
          {"items", p.plan.expected_items()},
          {"message_bytes", p.plan.message_bytes()},
          {"index_bytes", p.plan.index_bytes()},
          {"payload_bytes", p.plan.payload_bytes()},
          {"lower_bound_bytes", p.plan.lower_bound_bytes()},
          {"wire_s", p.wire_s},
          {"codec_s", p.codec_s},
          {"total_s", p.total_s()},
          {"speedup", p.speedup},
          {"pays_below_bit_s", p.pays_below_bit_s}};
}

Json json_of(const PlanCommand& command, const Predictions& all) {
  Json choices = Json::array();
  for (const Prediction& p : all.choices) choices.push_back(json_of(p));
  return {{"elements", command.elements},
          {"type", name(command.type)},
          {"density", command.density},
          {"workers", command.workers},
          {"bandwidth_bit_s", command.bandwidth},
          {"dense_bytes", all.dense_bytes},
          {"dense_s", all.dense_s},
          {"choices", choices},
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
  command->add_option("--workers", options->workers, "Workers")->required()->check(CLI::PositiveNumber)->type_name("W");
  add_parsed(*command, "--bandwidth", options->bandwidth, parse_bandwidth, "Of every worker's link: 10gbit, 1e9")
      ->required();
  add_parsed(*command, "--type", options->type, parse_element_type, "Element type [float32]");
  add_parsed(*command, "--codec", options->codec, parse_codec, "Only packed or only sketch [both]");
  add_parsed(*command, "--index", options->index, parse_index, "Only auto, bitmap or bloom [bitmap and bloom]");
  add_parsed(*command, "--cells", options->cells, parse_cells, "auto, native, fixed32, fixed64 or float32 [auto]");
  command
      ->add_option("--grain", options->grain, "Elements per item: 1, 2, 4 ... 1024; non-zeros are taken to fill them")
      ->capture_default_str()
      ->type_name("G");
  add_parsed(
      *command, "--codec-speed", options->codec_speed,
      [](const std::string& text) { return 1e9 * parse_positive(text); },
      "Encode and decode together, in GB/s of the dense gradient");
  command->add_option("--json", options->json, "Write JSON to this file, or to standard output for -")
      ->type_name("FILE");
  command->callback([options] { run_plan(*options); });
}

}  // namespace peel::cli
