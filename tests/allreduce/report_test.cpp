// Reports for programs: JSON that parses, with every number in it, and text that Prometheus accepts.
#include "peel/report.h"

#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <sstream>
#include <string>

#if __has_include(<nlohmann/json.hpp>)
#include <nlohmann/json.hpp>
#define PEEL_HAVE_JSON 1
#endif

namespace peel::testing {
namespace {

Report some_report() {
  Report r;
  r.step = 3;
  r.workers = 4;
  r.strategy = Strategy::sketch;
  r.grain = 64;
  r.index = Index::bloom;
  r.chunks = 5;
  r.exactness = Exactness::fixed_point;
  r.error_bound = 1.5e-9;
  r.scale = -12;
  r.bytes_sent = 123'456'789'012;
  r.dense_bytes = 1'000'000'000'000;
  r.items = 17;
  r.union_elements = 17 * 64;
  r.rounds = 2;
  r.peel_rounds = 9;
  r.lost = 1;
  r.estimate_error = 0.75;
  r.repaired = 6;
  r.rescaled = 7;
  r.not_finite = 8;
  r.reset = true;
  r.workspace_bytes = 4096;
  r.encode_s = 0.25;
  r.wire_s = 0.125;
  r.decode_s = 1e-7;
  r.total_s = 0.375;
  return r;
}

#if PEEL_HAVE_JSON
TEST(Report, JsonHasEveryField) {
  const nlohmann::json j = nlohmann::json::parse(some_report().to_json());
  EXPECT_EQ(j.size(), 26u);
  EXPECT_EQ(j["step"], 3);
  EXPECT_EQ(j["workers"], 4);
  EXPECT_EQ(j["strategy"], "sketch");
  EXPECT_EQ(j["grain"], 64);
  EXPECT_EQ(j["index"], "bloom");
  EXPECT_EQ(j["chunks"], 5);
  EXPECT_EQ(j["exactness"], "fixed point");
  EXPECT_DOUBLE_EQ(j["error_bound"], 1.5e-9);
  EXPECT_EQ(j["scale"], -12);
  EXPECT_EQ(j["bytes_sent"], 123'456'789'012);
  EXPECT_EQ(j["dense_bytes"], 1'000'000'000'000);
  EXPECT_EQ(j["items"], 17);
  EXPECT_EQ(j["union_elements"], 17 * 64);
  EXPECT_EQ(j["rounds"], 2);
  EXPECT_EQ(j["peel_rounds"], 9);
  EXPECT_EQ(j["lost"], 1);
  EXPECT_DOUBLE_EQ(j["estimate_error"], 0.75);
  EXPECT_EQ(j["repaired"], 6);
  EXPECT_EQ(j["rescaled"], 7);
  EXPECT_EQ(j["not_finite"], 8);
  EXPECT_EQ(j["reset"], true);
  EXPECT_EQ(j["workspace_bytes"], 4096);
  EXPECT_DOUBLE_EQ(j["encode_s"], 0.25);
  EXPECT_DOUBLE_EQ(j["wire_s"], 0.125);
  EXPECT_DOUBLE_EQ(j["decode_s"], 1e-7);
  EXPECT_DOUBLE_EQ(j["total_s"], 0.375);
}

TEST(Report, JsonOfTotalsAddsUp) {
  Totals totals;
  totals.add(some_report());
  totals.add(some_report());
  const nlohmann::json j = nlohmann::json::parse(totals.to_json());
  EXPECT_EQ(j["steps"], 2);
  EXPECT_EQ(j["bytes_sent"], 2 * 123'456'789'012);
  EXPECT_EQ(j["dense_bytes"], 2'000'000'000'000);
  EXPECT_EQ(j["items"], 34);
  EXPECT_EQ(j["repaired"], 12);
  EXPECT_EQ(j["rescaled"], 14);
  EXPECT_EQ(j["not_finite"], 16);
  EXPECT_EQ(j["resets"], 2);
  EXPECT_DOUBLE_EQ(j["encode_s"], 0.5);
  EXPECT_DOUBLE_EQ(j["wire_s"], 0.25);
  EXPECT_DOUBLE_EQ(j["decode_s"], 2e-7);
  EXPECT_DOUBLE_EQ(j["total_s"], 0.75);
}
#endif

// Every line is a comment of the two kinds there are, or a sample; every metric has both comments before it.
TEST(Report, PrometheusTextIsWellFormed) {
  Totals totals;
  totals.add(some_report());
  std::istringstream text(to_prometheus(some_report(), totals, "layer \"7\"\\\nend"));
  const std::regex help("# HELP (peel_[a-z_]+) .+"), type("# TYPE (peel_[a-z_]+) (counter|gauge)");
  const std::regex sample(R"re((peel_[a-z_]+)\{state="((?:[^"\\]|\\["\\n])*)"\} (\S+))re");
  std::map<std::string, double> values;
  std::string line, helped, typed;
  std::smatch match;
  while (std::getline(text, line)) {
    if (std::regex_match(line, match, help)) {
      helped = match[1];
    } else if (std::regex_match(line, match, type)) {
      EXPECT_EQ(match[1], helped);
      typed = match[1];
      EXPECT_EQ(match[2] == "counter", helped.ends_with("_total")) << helped;
    } else {
      ASSERT_TRUE(std::regex_match(line, match, sample)) << line;
      EXPECT_EQ(match[1], typed);
      EXPECT_EQ(values.count(match[1]), 0u) << "a metric twice";
      values[match[1]] = std::stod(match[3]);
    }
  }
  EXPECT_EQ(values.at("peel_steps_total"), 1);
  EXPECT_EQ(values.at("peel_sent_bytes_total"), 123'456'789'012);
  EXPECT_EQ(values.at("peel_dense_bytes_total"), 1e12);
  EXPECT_EQ(values.at("peel_repaired_items_total"), 6);
  EXPECT_EQ(values.at("peel_rescaled_chunks_total"), 7);
  EXPECT_EQ(values.at("peel_not_finite_chunks_total"), 8);
  EXPECT_EQ(values.at("peel_resets_total"), 1);
  EXPECT_EQ(values.at("peel_encode_seconds_total"), 0.25);
  EXPECT_EQ(values.at("peel_union_items"), 17);
  EXPECT_EQ(values.at("peel_lost_items"), 1);
  EXPECT_EQ(values.at("peel_workspace_bytes"), 4096);
  EXPECT_EQ(values.at("peel_error_bound"), 1.5e-9);
}

TEST(Report, NamesOfStrategiesAndExactness) {
  EXPECT_EQ(name(Strategy::automatic), "auto");
  EXPECT_EQ(name(Strategy::dense), "dense");
  EXPECT_EQ(name(Strategy::gather), "gather");
  EXPECT_EQ(name(Exactness::as_dense), "as exact as a dense sum");
  EXPECT_EQ(name(Exactness::rounded_once), "rounded once");
  EXPECT_EQ(name(Exactness::fixed_point), "fixed point");
  EXPECT_EQ(name(Exactness::estimated), "estimated");
}

}  // namespace
}  // namespace peel::testing
