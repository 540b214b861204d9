#include "cli/measurement_report.h"

#include <fmt/format.h>

#include "cli/numbers.h"
#include "cli/table.h"

namespace peel::cli {
namespace {

constexpr auto kLeft = Column::Side::left;

const Table& table() {
  static const Table kTable{{"codec", 14, kLeft}, {"index", 6, kLeft}, {"grain", 9},  {"thr", 3},    {"/dense", 6},
                            {"/bound", 6},        {"encode", 8},       {"decode", 8}, {"x copy", 6}, {"sum", 5, kLeft}};
  return kTable;
}

std::string show_multiple(double part, double whole) {
  if (whole <= 0) return "-";
  return fmt::format("{:.{}f}", part / whole, part / whole < 100 ? 2 : 0);
}

// How much of a GPU's time would be left if the codec did nothing but copy; of the host the multiple says as much.
double share(const Measurement& m) { return m.memcpy_s / (m.encode_s + m.decode_s); }

Cell verdict_of(const Measurement& m) {
  if (m.verdict.wrong != 0) return {"wrong", Ink::bad};
  return m.recovery.lost != 0 ? "lost" : "ok";
}

// null where the question does not arise.
Json when(bool asked, double value) { return asked ? Json(value) : Json(); }

}  // namespace

Json to_json(const Pattern& pattern, const Gradients& gradients, const Measurement& m) {
  const MeasureOptions& options = m.options;
  const bool loses = options.estimate && m.recovery.lost != 0;
  return Json{
      {"elements", gradients.elements()},
      {"type", name(gradients.type())},
      {"items", m.items},
      {"nonzeros", gradients.nonzeros()},
      {"density", gradients.density()},
      {"pattern", pattern.text},
      {"overlap", when(gradients.drawn(), gradients.overlap())},
      {"codec", name(m.plan.codec())},
      {"cells", name(m.plan.cells())},
      {"scale", m.plan.scale()},
      {"error_bound", m.plan.error_bound()},
      {"view", name(options.view)},
      {"index", name(m.plan.index())},
      {"grain", m.plan.grain()},
      {"phase", m.plan.phase()},
      {"grain_s", when(!options.grain, m.grain_s)},
      {"backend", name(options)},
      {"gpu", m.gpu ? Json(m.gpu->name) : Json()},
      {"sm_clock_mhz", m.gpu ? Json(m.gpu->sm_clock_mhz) : Json()},
      {"memory_clock_mhz", m.gpu ? Json(m.gpu->memory_clock_mhz) : Json()},
      {"cold_l2", m.gpu ? Json(options.cold_l2) : Json()},
      {"threads", options.threads},
      {"workers", gradients.workers()},
      {"repeat", options.repeat},
      {"seed", options.seed},
      {"encode_s", m.encode_s},
      {"decode_s", m.decode_s},
      {"merge_s", when(gradients.workers() > 1, m.merge_s)},
      {"memcpy_s", m.memcpy_s},
      {"roofline_s", when(m.gpu.has_value(), m.memcpy_s)},
      {"share", when(m.gpu.has_value(), share(m))},
      {"message_bytes", m.message_bytes()},
      {"index_bytes", m.index_bytes},
      {"payload_bytes", m.payload_bytes},
      {"worker_bytes", m.worker_bytes},
      {"dense_bytes", gradients.dense_bytes()},
      {"lower_bound_bytes", lower_bound_bytes(gradients)},
      {"payload_ratio", when(options.payload_ratio > 0, options.payload_ratio)},
      {"blocks", m.plan.blocks()},
      {"cells_per_block", m.plan.cells_per_block()},
      {"decoded_items", m.recovery.items},
      {"rounds", m.recovery.rounds},
      {"lost", m.recovery.lost},
      {"wrong", m.verdict.wrong},
      {"max_error", m.verdict.max_error},
      {"estimate", options.estimate},
      {"mean_relative_error", when(loses, m.verdict.mean_relative_error)},
      {"max_relative_error", when(loses, m.verdict.max_relative_error)},
  };
}

std::string table_heading() { return table().heading(); }

std::string table_row(const Gradients& gradients, const Measurement& m) {
  const std::string codec = fmt::format("{} {}", name(m.plan.codec()), name(m.plan.cells()));
  const std::string grain =
      m.plan.phase() == 0 ? fmt::format("{}", m.plan.grain()) : fmt::format("{}+{}", m.plan.grain(), m.plan.phase());
  std::string row = table().row(
      {codec, name(m.plan.index()), grain, m.gpu ? "gpu" : fmt::format("{}", m.options.threads),
       show_ratio(m.message_bytes(), gradients.dense_bytes()),
       show_multiple(static_cast<double>(m.message_bytes()), static_cast<double>(lower_bound_bytes(gradients))),
       show_seconds(m.encode_s), show_seconds(m.decode_s), show_multiple(m.encode_s + m.decode_s, m.memcpy_s),
       verdict_of(m)});
  if (m.verdict.wrong == 0 && m.recovery.lost == 0) return row;
  row += fmt::format("  {} items lost, {} elements wrong\n", show_count(m.recovery.lost), show_count(m.verdict.wrong));
  if (m.options.estimate && m.recovery.lost != 0) {
    row += fmt::format("  estimated: relative error {:.3g} on average, {:.3g} at most\n", m.verdict.mean_relative_error,
                       m.verdict.max_relative_error);
  }
  return row;
}

}  // namespace peel::cli
