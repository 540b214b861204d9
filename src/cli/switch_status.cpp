// peel switch status: jobs, slots, packets and drops of a switch, for people, programs and Prometheus.
#include "cli/commands.h"

#ifdef PEEL_HAVE_SWITCH

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <bit>
#include <chrono>
#include <memory>
#include <string>

#include "cli/json.h"
#include "cli/numbers.h"
#include "cli/switch_address.h"
#include "cli/switch_log.h"
#include "cli/switch_secret.h"
#include "cli/table.h"
#include "switch/control/loop.h"
#include "switch/udp/status.h"
#include "switch/wire/control.h"

namespace peel::cli {
namespace {

using aggregator::drop_names;
using aggregator::Status;

std::string label_of(const peel_job_status& job) {
  std::string label;
  for (const char c : printable(detail::name_of(job.name))) {
    if (c == '"' || c == '\\') label += '\\';
    label += c;
  }
  return label;
}

void print_table(const Status& status) {
  const peel_status& total = status.total;
  const auto row = [](const char* label, const std::string& text) { print_fact(label, text); };
  row("jobs", fmt::format("{} of {}{}", total.jobs, total.most_jobs,
                          status.draining ? "; the switch is being shut down, and takes no new ones" : ""));
  row("slots", fmt::format("{} of {} held by jobs", total.slots_held, total.slots));
  row("packets", fmt::format("{} received, {} sent", show_count(total.received), show_count(total.sent)));
  row("combined", fmt::format("{}, {} rounds complete", show_count(total.combined), show_count(total.completed)));
  row("repeated", show_count(total.repeated));
  for (std::size_t i = 0; i < PEEL_DROPS; ++i) {
    if (total.dropped[i] != 0) row("dropped", fmt::format("{} {}", show_count(total.dropped[i]), drop_names()[i]));
  }
  if (status.jobs.empty()) return;
  const Table table{{"job", 5},     {"name", 17, Column::Side::left},
                    {"workers", 7}, {"gone", 4},
                    {"slots", 5},   {"busy", 5},
                    {"packets", 7}, {"rounds", 6},
                    {"dropped", 7}, {"silent", 8}};
  fmt::print("\n{}", table.heading());
  for (const peel_job_status& job : status.jobs) {
    const int gone = std::popcount(job.gone);
    fmt::print("{}", table.row({fmt::format("{}", job.job),
                                printable(detail::name_of(job.name)),
                                fmt::format("{}/{}", std::popcount(job.joined), job.workers),
                                {fmt::format("{}", gone), gone != 0 ? Ink::bad : Ink::plain},
                                fmt::format("{}", job.slot_count),
                                fmt::format("{}", job.busy),
                                show_bytes(job.received),
                                show_bytes(job.completed),
                                show_bytes(job.dropped),
                                show_seconds(job.silent_ms / 1e3)}));
  }
}

Json json_of(const Status& status) {
  const peel_status& total = status.total;
  Json drops = Json::object();
  for (std::size_t i = 0; i < PEEL_DROPS; ++i) drops[drop_names()[i]] = total.dropped[i];
  Json jobs = Json::array();
  for (const peel_job_status& job : status.jobs) {
    jobs.push_back({{"job", job.job},
                    {"name", detail::name_of(job.name)},
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
          {"draining", status.draining},
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
  metric("draining", "gauge", "1 while the switch is being shut down.", status.draining ? 1 : 0);
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
  for (std::size_t i = 0; i < PEEL_DROPS; ++i) {
    fmt::print("peel_switch_dropped_packets_total{{reason=\"{}\"}} {}\n", drop_names()[i], total.dropped[i]);
  }
  const auto of_jobs = [&](const char* name, const char* type, const char* help, auto value) {
    if (status.jobs.empty()) return;
    fmt::print("# HELP peel_switch_job_{0} {1}\n# TYPE peel_switch_job_{0} {2}\n", name, help, type);
    for (const peel_job_status& job : status.jobs) {
      fmt::print("peel_switch_job_{}{{job=\"{}\",name=\"{}\"}} {}\n", name, job.job, label_of(job), value(job));
    }
  };
  of_jobs("workers_joined", "gauge", "Workers that joined.", [](const auto& job) { return std::popcount(job.joined); });
  of_jobs("workers_gone", "gauge", "Workers that left or died.",
          [](const auto& job) { return std::popcount(job.gone); });
  of_jobs("slots", "gauge", "Slots of the job.", [](const auto& job) { return job.slot_count; });
  of_jobs("slots_busy", "gauge", "Slots that wait for workers.", [](const auto& job) { return job.busy; });
  of_jobs("packets_total", "counter", "Packets of the job.", [](const auto& job) { return job.received; });
  of_jobs("rounds_total", "counter", "Results of the job.", [](const auto& job) { return job.completed; });
  of_jobs("dropped_packets_total", "counter", "Packets of the job that were dropped.",
          [](const auto& job) { return job.dropped; });
  of_jobs("silent_seconds", "gauge", "Since a sign of life of its most silent worker.",
          [](const auto& job) { return job.silent_ms / 1e3; });
}

struct Words {
  std::string connect = fmt::format("127.0.0.1:{}", int{PEEL_WIRE_PORT});
  std::string secret_file;
  std::string jobs;
  std::string json;
  bool prometheus = false;
  double timeout = 2;
};

void show_status(const Words& words) {
  const auto timeout = std::chrono::milliseconds(static_cast<std::int64_t>(words.timeout * 1e3));
  const aggregator::Question question{switch_address(words.connect), read_secret(words.secret_file), words.jobs};
  const Status status = aggregator::ask_status(question, timeout);
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
  command
      ->add_option("--jobs", words->jobs, "Only jobs whose names begin so; what a tenant with its own secret may ask")
      ->type_name("PREFIX");
  add_json_option(*command, words->json);
  command->add_flag("--prometheus", words->prometheus, "Write what Prometheus reads")->excludes("--json");
  command->add_option("--timeout", words->timeout, "Seconds to wait for an answer")->check(CLI::Range(0.01, 1e6));
  add_secret_option(*command, words->secret_file);
  command->callback([words] { show_status(*words); });
}

}  // namespace peel::cli

#endif
