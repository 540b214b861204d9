#include "cli/contest_report.h"

#include <fmt/format.h>

#include <bit>
#include <filesystem>

#include "cli/machine.h"
#include "cli/numbers.h"
#include "cli/table.h"

namespace peel::cli {
namespace {

constexpr auto kLeft = Column::Side::left;

const Table& table() {
  static const Table kTable{{"strategy", 13, kLeft}, {"grain", 5}, {"time", 8},   {"algbw", 6},  {"busbw", 6},
                            {"speed-up", 8},         {"sent", 7},  {"/dense", 7}, {"rounds", 6}, {"sum", 5, kLeft}};
  return kTable;
}

// As nccl-tests define them: how much of the array was summed in a second, and what that asks of each link when the
// array is sent as it is.
struct Bandwidths {
  double algorithm = 0;
  double bus = 0;
};
Bandwidths bandwidths(const Gradients& gradients, double seconds) {
  const double workers = gradients.workers();
  const double algorithm = static_cast<double>(gradients.dense_bytes()) / seconds / 1e9;
  return {algorithm, algorithm * 2 * (workers - 1) / workers};
}

std::uint64_t ring_bytes(const Gradients& gradients) {
  return 2 * (gradients.workers() - 1) * gradients.dense_bytes() / gradients.workers();
}

Json baseline_times(const std::vector<Standing>& all) {
  Json times = Json::object();
  for (const Standing& one : all) {
    if (one.is_baseline) times[one.name] = one.seconds;
  }
  return times;
}

// The one that was asked for, and in brackets what was done in its stead.
std::string strategy_of(const Standing& standing) {
  const std::string_view chosen = name(standing.report.strategy);
  return standing.name == chosen ? standing.name : fmt::format("{} ({})", standing.name, chosen);
}

Json what_was_summed(const ContestSetting& setting) {
  const Gradients& gradients = *setting.gradients;
  Json json{
      {"machine", machine()},
      {"date", today()},
      {"transport", setting.transport},
      {"workers", gradients.workers()},
      {"elements", gradients.elements()},
      {"type", name(gradients.type())},
      {"nonzeros", gradients.nonzeros()},
      {"density", gradients.density()},
      {"pattern", setting.pattern.text},
      {"overlap", gradients.drawn() ? Json(name(setting.drawn.sharing)) : Json()},
      {"values", gradients.drawn() ? Json(name(setting.drawn.values)) : Json()},
      {"view", name(setting.options->view)},
      {"memory", name(setting.options->memory)},
      {"seed", setting.drawn.seed},
      {"warmup", setting.options->warmup},
      {"repeat", setting.options->repeat},
  };
  if (setting.rate_bits != 0) json["rate_bits"] = setting.rate_bits;
  return json;
}

}  // namespace

Json to_json(const ContestSetting& setting, const Standing& standing, const std::vector<Standing>& all) {
  const Standing& baseline = baseline_of(all);
  const Report& report = standing.report;
  const Bandwidths speed = bandwidths(*setting.gradients, standing.seconds);
  Json json = what_was_summed(setting);
  json.update(Json{
      {"strategy", standing.name},
      {"chosen", name(report.strategy)},
      {"grain", report.grain},
      {"index", name(report.index)},
      {"chunks", report.chunks},
      {"exactness", name(report.exactness)},
      {"error_bound", report.error_bound},
      {"seconds", standing.seconds},
      {"baseline", baseline.name},
      {"baseline_seconds", baseline.seconds},
      {"baselines", baseline_times(all)},
      {"speedup", baseline.seconds / standing.seconds},
      {"algbw", speed.algorithm},
      {"busbw", speed.bus},
      {"bytes_sent", static_cast<std::uint64_t>(standing.bytes_sent)},
      {"dense_bytes", ring_bytes(*setting.gradients)},
      {"items", report.items},
      {"union_elements", report.union_elements},
      {"rounds", report.rounds},
      {"peel_rounds", report.peel_rounds},
      {"lost", standing.lost},
      {"wrong", standing.wrong},
      {"summed", standing.sums * setting.gradients->elements()},
      {"repaired", standing.repaired},
      {"rescaled", standing.rescaled},
      {"encode_s", standing.encode_s},
      {"wire_s", standing.wire_s},
      {"decode_s", standing.decode_s},
      {"workspace_bytes", standing.workspace_bytes},
      {"link_latency_s", setting.link.latency_s},
      {"link_bits", setting.link.bytes_per_second * 8},
      {"link_copy_bytes_s", setting.link.copy_bytes_per_second},
  });
  return json;
}

std::string contest_heading() { return table().heading(); }

std::string contest_case(const ContestSetting& setting, const std::vector<Standing>& all) {
  const Standing& baseline = baseline_of(all);
  const Gradients& gradients = *setting.gradients;
  return wrapped(fmt::format("{}{}; {}: {}", describe(setting.pattern, gradients),
                             gradients.drawn() ? fmt::format(", {}", name(setting.drawn.sharing)) : "", baseline.name,
                             show_seconds(baseline.seconds)));
}

std::string contest_row(const ContestSetting& setting, const Standing& standing, const std::vector<Standing>& all) {
  const Gradients& gradients = *setting.gradients;
  const Bandwidths speed = bandwidths(gradients, standing.seconds);
  const auto bytes = static_cast<std::uint64_t>(standing.bytes_sent);
  const double speedup = baseline_of(all).seconds / standing.seconds;
  std::string row = table().row({strategy_of(standing),
                                 fmt::format("{}", standing.report.grain),
                                 show_seconds(standing.seconds),
                                 fmt::format("{:.3g}", speed.algorithm),
                                 fmt::format("{:.3g}", speed.bus),
                                 {fmt::format("{:.2f}x", speedup), speedup > 1 ? Ink::good : Ink::plain},
                                 show_bytes(bytes),
                                 show_ratio(bytes, ring_bytes(gradients)),
                                 fmt::format("{}", standing.report.rounds),
                                 standing.wrong != 0  ? Cell("wrong", Ink::bad)
                                 : standing.lost != 0 ? Cell("lost", Ink::bad)
                                                      : Cell("ok")});
  if (standing.wrong == 0 && standing.lost == 0) return row;
  return row +
         fmt::format("  {} items lost, {} elements wrong\n", show_count(standing.lost), show_count(standing.wrong));
}

}  // namespace peel::cli
