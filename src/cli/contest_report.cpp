#include "cli/contest_report.h"

#include <fmt/format.h>

#include <bit>
#include <filesystem>

#include "cli/numbers.h"

namespace peel::cli {
namespace {

constexpr std::string_view kRow =
    "{:<12} {:>9} {:>7} {:<11} {:>3}  {:<8} {:<8} {:>5} {:>9} {:>8} {:>8} {:>8} {:>8} {:>7} {:>6} {:>5} {:>6}\n";

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

std::string short_count(std::uint64_t count) {
  return std::has_single_bit(count) ? fmt::format("2^{}", std::countr_zero(count)) : show_count(count);
}

std::string short_name(const Pattern& pattern) {
  if (pattern.kind != Pattern::Kind::npy) return pattern.text;
  return std::filesystem::path(pattern.files.front()).filename().string().substr(0, 12);
}

Json what_was_summed(const ContestSetting& setting) {
  const Gradients& gradients = *setting.gradients;
  return Json{
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

std::string contest_heading() {
  return fmt::format(fmt::runtime(kRow), "pattern", "elements", "density", "overlap", "wrk", "strategy", "chosen",
                     "grain", "time", "algbw", "busbw", "speed-up", "bytes", "/dense", "rounds", "lost", "wrong");
}

std::string contest_row(const ContestSetting& setting, const Standing& standing, const std::vector<Standing>& all) {
  const Gradients& gradients = *setting.gradients;
  const Bandwidths speed = bandwidths(gradients, standing.seconds);
  const auto bytes = static_cast<std::uint64_t>(standing.bytes_sent);
  return fmt::format(fmt::runtime(kRow), short_name(setting.pattern), short_count(gradients.elements()),
                     show_percent(gradients.density()), gradients.drawn() ? name(setting.drawn.sharing) : "-",
                     gradients.workers(), standing.name, name(standing.report.strategy), standing.report.grain,
                     show_seconds(standing.seconds), fmt::format("{:.3f}", speed.algorithm),
                     fmt::format("{:.3f}", speed.bus),
                     fmt::format("{:.2f}x", baseline_of(all).seconds / standing.seconds), show_bytes(bytes),
                     show_ratio(bytes, ring_bytes(gradients)), standing.report.rounds, standing.lost, standing.wrong);
}

}  // namespace peel::cli
