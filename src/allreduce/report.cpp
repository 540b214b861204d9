#include "peel/report.h"

#include <cmath>
#include <cstdio>

namespace peel {

std::string_view name(Strategy strategy) noexcept {
  switch (strategy) {
    case Strategy::dense:
      return "dense";
    case Strategy::packed:
      return "packed";
    case Strategy::sketch:
      return "sketch";
    case Strategy::split:
      return "split";
    case Strategy::gather:
      return "gather";
    default:
      return "auto";
  }
}

std::string_view name(Exactness exactness) noexcept {
  switch (exactness) {
    case Exactness::as_dense:
      return "as exact as a dense sum";
    case Exactness::rounded_once:
      return "rounded once";
    case Exactness::fixed_point:
      return "fixed point";
    default:
      return "estimated";
  }
}

namespace {

// Whole numbers as such, others with nine digits.
std::string number(double value) {
  char text[32];
  if (value == std::floor(value) && std::fabs(value) < 1e15) {
    std::snprintf(text, sizeof(text), "%.0f", value);
  } else {
    std::snprintf(text, sizeof(text), "%.9g", value);
  }
  return text;
}

class JsonObject {
 public:
  JsonObject& add(std::string_view key, double value) { return raw(key, number(value)); }
  JsonObject& add(std::string_view key, std::string_view value) { return raw(key, '"' + std::string(value) + '"'); }
  JsonObject& flag(std::string_view key, bool value) { return raw(key, value ? "true" : "false"); }
  std::string finish() { return text_ + "}"; }

 private:
  JsonObject& raw(std::string_view key, const std::string& value) {
    text_ += (text_.size() > 1 ? ",\"" : "\"") + std::string(key) + "\":" + value;
    return *this;
  }
  std::string text_ = "{";
};

double real(std::uint64_t value) { return static_cast<double>(value); }

// Labels may hold anything; these three have to be escaped.
std::string escaped(std::string_view label) {
  std::string text;
  for (const char c : label) {
    if (c == '\\' || c == '"') text += '\\';
    text += c == '\n' ? ' ' : c;
  }
  return text;
}

struct Metric {
  std::string_view name;
  std::string_view kind;
  std::string_view help;
  double value;
};

}  // namespace

std::string Report::to_json() const {
  return JsonObject()
      .add("step", real(step))
      .add("workers", workers)
      .add("strategy", peel::name(strategy))
      .add("grain", grain)
      .add("index", peel::name(index))
      .add("chunks", chunks)
      .add("exactness", peel::name(exactness))
      .add("error_bound", error_bound)
      .add("scale", scale)
      .add("bytes_sent", real(bytes_sent))
      .add("dense_bytes", real(dense_bytes))
      .add("items", real(items))
      .add("union_elements", real(union_elements))
      .add("rounds", rounds)
      .add("peel_rounds", peel_rounds)
      .add("lost", real(lost))
      .add("estimate_error", estimate_error)
      .add("repaired", real(repaired))
      .add("rescaled", rescaled)
      .add("not_finite", not_finite)
      .flag("reset", reset)
      .add("workspace_bytes", real(workspace_bytes))
      .add("encode_s", encode_s)
      .add("wire_s", wire_s)
      .add("decode_s", decode_s)
      .add("total_s", total_s)
      .finish();
}

void Totals::add(const Report& report) {
  ++steps;
  bytes_sent += report.bytes_sent;
  dense_bytes += report.dense_bytes;
  items += report.items;
  repaired += report.repaired;
  rescaled += report.rescaled;
  not_finite += report.not_finite;
  resets += report.reset ? 1 : 0;
  encode_s += report.encode_s;
  wire_s += report.wire_s;
  decode_s += report.decode_s;
  total_s += report.total_s;
}

std::string Totals::to_json() const {
  return JsonObject()
      .add("steps", real(steps))
      .add("bytes_sent", real(bytes_sent))
      .add("dense_bytes", real(dense_bytes))
      .add("items", real(items))
      .add("repaired", real(repaired))
      .add("rescaled", real(rescaled))
      .add("not_finite", real(not_finite))
      .add("resets", real(resets))
      .add("encode_s", encode_s)
      .add("wire_s", wire_s)
      .add("decode_s", decode_s)
      .add("total_s", total_s)
      .finish();
}

std::string to_prometheus(const Report& last, const Totals& totals, std::string_view label) {
  const Metric metrics[] = {
      {"steps_total", "counter", "All-reduces so far.", real(totals.steps)},
      {"sent_bytes_total", "counter", "Bytes this worker sent.", real(totals.bytes_sent)},
      {"dense_bytes_total", "counter", "Bytes a dense ring would have sent.", real(totals.dense_bytes)},
      {"repaired_items_total", "counter", "Items that did not peel and were exchanged again.", real(totals.repaired)},
      {"rescaled_chunks_total", "counter", "Chunks redone with another scale.", real(totals.rescaled)},
      {"not_finite_chunks_total", "counter", "Chunks that held NaN or infinity.", real(totals.not_finite)},
      {"resets_total", "counter", "Steps in which workers had chosen differently.", real(totals.resets)},
      {"encode_seconds_total", "counter", "Time spent encoding.", totals.encode_s},
      {"wire_seconds_total", "counter", "Time spent waiting for other workers.", totals.wire_s},
      {"decode_seconds_total", "counter", "Time spent decoding.", totals.decode_s},
      {"seconds_total", "counter", "Time spent in all-reduces.", totals.total_s},
      {"union_items", "gauge", "Items in the last union.", real(last.items)},
      {"lost_items", "gauge", "Items of the last step that were only estimated.", real(last.lost)},
      {"estimate_error", "gauge", "What estimates of the last step missed, as a share of the norm.",
       last.estimate_error},
      {"workspace_bytes", "gauge", "Memory that the chunks under way worked in, at most; all states share it.",
       real(last.workspace_bytes)},
      {"error_bound", "gauge", "Largest error of an element of the last sum.", last.error_bound},
  };
  std::string text;
  for (const Metric& metric : metrics) {
    const std::string full = "peel_" + std::string(metric.name);
    text.append("# HELP ").append(full).append(" ").append(metric.help).append("\n");
    text.append("# TYPE ").append(full).append(" ").append(metric.kind).append("\n");
    text.append(full)
        .append("{state=\"")
        .append(escaped(label))
        .append("\"} ")
        .append(number(metric.value))
        .append("\n");
  }
  return text;
}

}  // namespace peel
