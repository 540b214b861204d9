// peel switch status: jobs, slots, packets and drops of a switch, for people, programs and Prometheus.
#include "cli/commands.h"

#ifdef PEEL_HAVE_SWITCH

#include <fmt/format.h>

#include <array>
#include <bit>
#include <chrono>
#include <memory>
#include <string>

#include "cli/json.h"
#include "cli/numbers.h"
#include "cli/switch_secret.h"
#include "switch/udp/status.h"

namespace peel::cli {
namespace {

using aggregator::Status;

constexpr std::array<const char*, PEEL_DROPS> kDrops = {"malformed", "corrupt",  "unknown_job", "forged",
                                                        "no_slot",   "stale",    "early",       "mismatch",
                                                        "hopeless",  "unsigned", "unsent"};

void print_table(const Status& status) {
  const peel_status& total = status.total;
  const auto row = [](const char* label, const std::string& text) { fmt::print("{:<12} {}\n", label, text); };
  row("jobs", fmt::format("{} of {}", total.jobs, total.most_jobs));
  row("slots", fmt::format("{} of {} held by jobs", total.slots_held, total.slots));
  row("packets", fmt::format("{} received, {} sent", show_count(total.received), show_count(total.sent)));
  row("combined", fmt::format("{}, {} rounds complete", show_count(total.combined), show_count(total.completed)));
  row("repeated", show_count(total.repeated));
  for (std::size_t i = 0; i < kDrops.size(); ++i) {
    if (total.dropped[i] != 0) row("dropped", fmt::format("{} {}", show_count(total.dropped[i]), kDrops[i]));
  }
  if (status.jobs.empty()) return;
  fmt::print("\n{:>5} {:>18} {:>9} {:>6} {:>7} {:>6} {:>12} {:>12} {:>9} {:>10}\n", "job", "name", "workers", "gone",
             "slots", "busy", "packets", "rounds", "dropped", "silent");
  for (const peel_job_status& job : status.jobs) {
    fmt::print("{:>5} {:>18} {:>9} {:>6} {:>7} {:>6} {:>12} {:>12} {:>9} {:>10}\n", job.job,
               fmt::format("{:016x}", job.name), fmt::format("{}/{}", std::popcount(job.joined), job.workers),
               std::popcount(job.gone), job.slot_count, job.busy, show_count(job.received), show_count(job.completed),
               show_count(job.dropped), show_seconds(job.silent_ms / 1e3));
  }
}

Json json_of(const Status& status) {
  const peel_status& total = status.total;
  Json drops = Json::object();
  for (std::size_t i = 0; i < kDrops.size(); ++i) drops[kDrops[i]] = total.dropped[i];
  Json jobs = Json::array();
  for (const peel_job_status& job : status.jobs) {
    jobs.push_back({{"job", job.job},
                    {"name", fmt::format("{:016x}", job.name)},
                    {"workers", job.workers},
                    {"joined", std::popcount(job.joined)},
                    {"gone", std::popcount(job.gone)},
                    {"slots", job.slot_count},
                    {"busy", job.busy},
                    {"words", job.words},
                    {"packets", job.received},
                    {"rounds", job.completed},
                    {"dropped", job.dropped},
                    {"silent_s", job.silent_ms / 1e3}});
  }
  return {{"jobs_now", total.jobs},
          {"jobs_most", total.most_jobs},
          {"slots", total.slots},
          {"slots_held", total.slots_held},
          {"received", total.received},
          {"sent", total.sent},
          {"combined", total.combined},
          {"rounds", total.completed},
          {"repeated", total.repeated},
          {"dropped", drops},
          {"jobs", jobs}};
}

void print_prometheus(const Status& status) {
  const peel_status& total = status.total;
  const auto metric = [](const char* name, const char* type, const char* help, std::uint64_t value) {
    fmt::print("# HELP peel_switch_{0} {1}\n# TYPE peel_switch_{0} {2}\npeel_switch_{0} {3}\n", name, help, type,
               value);
  };
  metric("jobs", "gauge", "Jobs that are admitted.", total.jobs);
  metric("slots", "gauge", "Slots of the switch.", total.slots);
  metric("slots_held", "gauge", "Slots that jobs hold.", total.slots_held);
  metric("received_packets_total", "counter", "Packets that arrived.", total.received);
  metric("sent_packets_total", "counter", "Packets that left.", total.sent);
  metric("combined_packets_total", "counter", "Packets whose words went into a slot.", total.combined);
  metric("rounds_total", "counter", "Results that were completed.", total.completed);
  metric("repeated_packets_total", "counter", "Packets that came again.", total.repeated);
  fmt::print(
      "# HELP peel_switch_dropped_packets_total Packets that were dropped.\n"
      "# TYPE peel_switch_dropped_packets_total counter\n");
  for (std::size_t i = 0; i < kDrops.size(); ++i) {
    fmt::print("peel_switch_dropped_packets_total{{reason=\"{}\"}} {}\n", kDrops[i], total.dropped[i]);
  }
  const auto of_jobs = [&](const char* name, const char* type, const char* help, auto value) {
    if (status.jobs.empty()) return;
    fmt::print("# HELP peel_switch_job_{0} {1}\n# TYPE peel_switch_job_{0} {2}\n", name, help, type);
    for (const peel_job_status& job : status.jobs) {
      fmt::print("peel_switch_job_{}{{job=\"{}\",name=\"{:016x}\"}} {}\n", name, job.job, job.name, value(job));
    }
  };
  of_jobs("workers_joined", "gauge", "Workers that joined.", [](const auto& job) { return std::popcount(job.joined); });
  of_jobs("workers_gone", "gauge", "Workers that left.", [](const auto& job) { return std::popcount(job.gone); });
  of_jobs("slots", "gauge", "Slots of the job.", [](const auto& job) { return job.slot_count; });
  of_jobs("slots_busy", "gauge", "Slots that wait for workers.", [](const auto& job) { return job.busy; });
  of_jobs("packets_total", "counter", "Packets of the job.", [](const auto& job) { return job.received; });
  of_jobs("rounds_total", "counter", "Results of the job.", [](const auto& job) { return job.completed; });
  of_jobs("dropped_packets_total", "counter", "Packets of the job that were dropped.",
          [](const auto& job) { return job.dropped; });
  of_jobs("silent_seconds", "gauge", "Since its last packet.", [](const auto& job) { return job.silent_ms / 1e3; });
}

struct Words {
  std::string connect = fmt::format("127.0.0.1:{}", int{PEEL_WIRE_PORT});
  std::string secret_file;
  std::string json;
  bool prometheus = false;
  double timeout = 2;
};

void show_status(const Words& words) {
  const auto timeout = std::chrono::milliseconds(static_cast<std::int64_t>(words.timeout * 1e3));
  const Status status = aggregator::ask_status(detail::resolve(words.connect), read_secret(words.secret_file), timeout);
  if (words.prometheus) return print_prometheus(status);
  if (!words.json.empty()) return write_json_lines(words.json, {json_of(status)});
  print_table(status);
}

}  // namespace

void add_switch_status(CLI::App& app) {
  CLI::App* command = app.add_subcommand("status", "Jobs, slots, packets and drops of a switch that runs");
  const auto words = std::make_shared<Words>();
  command->option_defaults()->always_capture_default();
  command->add_option("--connect", words->connect, "Address of the switch");
  command->add_option("--json", words->json, "Write JSON to this file, or to standard output for -")->type_name("FILE");
  command->add_flag("--prometheus", words->prometheus, "Write what Prometheus reads")->excludes("--json");
  command->add_option("--timeout", words->timeout, "Seconds to wait for an answer")->check(CLI::Range(0.01, 1e6));
  add_secret_option(*command, words->secret_file);
  command->callback([words] { show_status(*words); });
}

}  // namespace peel::cli

#endif
