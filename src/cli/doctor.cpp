// peel doctor: what this build has and whether it works here. The first thing to look at when something is off.
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <CLI/Version.hpp>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <thread>

#include "cli/commands.h"
#include "cli/gpus.h"
#include "cli/json.h"
#include "cli/numbers.h"
#include "cli/terminal.h"
#include "cli/transports.h"
#include "peel/codec.h"

namespace peel::cli {
namespace {

struct Check {
  std::string backend;  // one of the library's, or cuda
  Codec codec = Codec::packed;
  std::string problem;  // empty: passed
};

// Whole numbers, so that the sum is known exactly; two workers whose supports overlap in part.
std::vector<float> gradient(std::uint32_t worker) {
  std::vector<float> x(10'007, 0.0F);
  for (std::size_t i = worker; i < x.size(); i += 31 + worker) x[i] = static_cast<float>(i % 97) - 48;
  return x;
}

Plan plan_for(Codec codec, std::uint64_t elements) {
  PlanOptions options{.elements = elements, .expected_items = elements / 15, .workers = 2, .codec = codec};
  if (codec == Codec::sketch) options.scale = fit_scale(48, CellType::fixed32, 2);
  return Plan::make(options);
}

std::string problem_of(Backend backend, Codec codec) {
  const Execution execution{.backend = backend};
  const std::vector<float> a = gradient(0);
  const std::vector<float> b = gradient(1);
  const Plan plan = plan_for(codec, a.size());
  Message sum(plan);
  Message other(plan);
  encode(plan, a, sum, execution);
  encode(plan, b, other, execution);
  merge(plan, sum, other, execution);
  std::vector<float> decoded(a.size(), 0.0F);
  const Recovery recovery = decode(plan, sum, decoded, {.execution = execution});
  if (recovery.lost != 0) return fmt::format("{} items were lost", recovery.lost);
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (decoded[i] != a[i] + b[i]) return fmt::format("element {} is {} instead of {}", i, decoded[i], a[i] + b[i]);
  }
  return "";
}

std::string problem_on_gpu(Codec codec) {
  const std::vector<float> a = gradient(0);
  return load_cuda().problem(plan_for(codec, a.size()), a, gradient(1));
}

template <typename FindProblem>
Check run_check(std::string_view backend, Codec codec, FindProblem find_problem) {
  Check check{std::string(backend), codec, {}};
  try {
    check.problem = find_problem();
  } catch (const std::exception& error) {
    check.problem = error.what();
  }
  return check;
}

struct Diagnosis {
  std::string forced;   // PEEL_BACKEND
  std::string chosen;   // what `auto` means here
  std::string problem;  // why nothing could be chosen
  std::string no_cuda;  // why this peel cannot use GPUs
  std::vector<GpuInfo> gpus;
  std::vector<TransportInfo> transports;
  std::vector<TransportInfo> planes;
  std::vector<Check> checks;
  std::string inprocess;  // what is wrong with that transport

  [[nodiscard]] bool healthy() const {
    bool all = problem.empty() && inprocess.empty();
    for (const Check& check : checks) all &= check.problem.empty();
    return all;
  }
};

Diagnosis diagnose() {
  Diagnosis result;
  if (const char* forced = std::getenv("PEEL_BACKEND")) result.forced = forced;
  try {
    result.chosen = name(resolve(Backend::automatic));
  } catch (const Error& error) {
    result.problem = error.what();
  }
  for (const Backend backend : available_backends()) {
    for (const Codec codec : {Codec::packed, Codec::sketch}) {
      result.checks.push_back(run_check(name(backend), codec, [&] { return problem_of(backend, codec); }));
    }
  }
  try {
    result.gpus = load_cuda().gpus();
  } catch (const Failure& failure) {
    result.no_cuda = failure.what();
  }
  for (const Codec codec : {Codec::packed, Codec::sketch}) {
    if (result.gpus.empty()) break;
    result.checks.push_back(run_check("cuda", codec, [&] { return problem_on_gpu(codec); }));
  }
  result.transports = known_transports();
  result.planes = known_planes();
  result.inprocess = inprocess_problem();
  return result;
}

std::string libraries() {
  return fmt::format("fmt {}.{}.{}, CLI11 {}, nlohmann-json {}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100,
                     FMT_VERSION % 100, CLI11_VERSION, NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR,
                     NLOHMANN_JSON_VERSION_PATCH);
}

std::string list(const std::vector<TransportInfo>& all) {
  std::string text;
  for (const TransportInfo& one : all) {
    if (!one.missing.empty()) continue;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", one.name);
    if (!one.version.empty()) text += fmt::format(" ({})", one.version);
  }
  return text;
}

// The library's, and the GPU's, which has verbs of its own.
std::vector<std::string> backends(const Diagnosis& diagnosis) {
  std::vector<std::string> names;
  for (const Backend backend : available_backends()) names.emplace_back(name(backend));
  if (diagnosis.no_cuda.empty()) names.emplace_back("cuda");
  return names;
}

// Everything that this program knows and that does not work here, with the reason.
std::vector<TransportInfo> missing(const Diagnosis& diagnosis) {
  std::vector<TransportInfo> all;
  if (!diagnosis.no_cuda.empty()) all.push_back({"cuda", "", diagnosis.no_cuda});
  for (const auto* some : {&diagnosis.transports, &diagnosis.planes}) {
    std::copy_if(some->begin(), some->end(), std::back_inserter(all),
                 [](const auto& one) { return !one.missing.empty(); });
  }
  return all;
}

std::string show(const GpuInfo& gpu) {
  return fmt::format("{}, compute capability {}, {}B, {} MHz, memory {} MHz", gpu.name, gpu.capability,
                     show_bytes(gpu.memory_bytes), gpu.sm_clock_mhz, gpu.memory_clock_mhz);
}

void print(const Diagnosis& diagnosis) {
  const auto row = [](std::string_view label, std::string_view text) { print_fact(label, text); };
  const auto check_row = [](std::string_view what, const std::string& problem) {
    print_fact("self-check", fmt::format("{}: {}", what, problem.empty() ? "ok" : problem),
               problem.empty() ? Ink::plain : Ink::bad);
  };
  row("peel", PEEL_VERSION);
  row("compiler", __VERSION__);
  row("libraries", libraries());
  row("backends", fmt::format("{}", fmt::join(backends(diagnosis), ", ")));
  print_fact("chosen", diagnosis.problem.empty() ? diagnosis.chosen : diagnosis.problem,
             diagnosis.problem.empty() ? Ink::plain : Ink::bad);
  row("PEEL_BACKEND", diagnosis.forced.empty() ? "not set" : diagnosis.forced);
  row("vectors", simd_target().empty() ? "none: the cpu backend is not in this build" : simd_target());
  row("cores", fmt::format("{}", std::thread::hardware_concurrency()));
  for (const GpuInfo& gpu : diagnosis.gpus) row("GPU", show(gpu));
  if (diagnosis.gpus.empty()) row("GPU", diagnosis.no_cuda.empty() ? "none here" : "none can be used");
  row("transports", list(diagnosis.transports));
  if (!diagnosis.planes.empty()) row("planes", list(diagnosis.planes));
  for (const TransportInfo& one : missing(diagnosis)) row("missing", fmt::format("{}: {}", one.name, one.missing));
  for (const Check& check : diagnosis.checks) {
    check_row(fmt::format("{} {}", check.backend, name(check.codec)), check.problem);
  }
  check_row("inprocess sum", diagnosis.inprocess);
}

Json json_of(const std::vector<TransportInfo>& all) {
  Json list = Json::array();
  for (const TransportInfo& one : all) {
    if (one.missing.empty()) list.push_back({{"name", one.name}, {"version", one.version}});
  }
  return list;
}

Json json_of(const Diagnosis& diagnosis) {
  Json gpus = Json::array();
  for (const GpuInfo& gpu : diagnosis.gpus) {
    gpus.push_back({{"name", gpu.name},
                    {"capability", gpu.capability},
                    {"memory_bytes", gpu.memory_bytes},
                    {"sm_clock_mhz", gpu.sm_clock_mhz},
                    {"memory_clock_mhz", gpu.memory_clock_mhz}});
  }
  Json checks = Json::array();
  for (const Check& check : diagnosis.checks) {
    checks.push_back({{"backend", check.backend},
                      {"codec", name(check.codec)},
                      {"ok", check.problem.empty()},
                      {"problem", check.problem}});
  }
  checks.push_back({{"transport", "inprocess"}, {"ok", diagnosis.inprocess.empty()}, {"problem", diagnosis.inprocess}});
  Json absent = Json::array();
  for (const TransportInfo& one : missing(diagnosis)) absent.push_back({{"name", one.name}, {"reason", one.missing}});
  return {{"version", PEEL_VERSION},
          {"compiler", __VERSION__},
          {"backends", backends(diagnosis)},
          {"chosen", diagnosis.chosen},
          {"peel_backend", diagnosis.forced},
          {"vectors", simd_target()},
          {"cores", std::thread::hardware_concurrency()},
          {"gpus", gpus},
          {"transports", json_of(diagnosis.transports)},
          {"planes", json_of(diagnosis.planes)},
          {"missing", absent},
          {"checks", checks},
          {"healthy", diagnosis.healthy()}};
}

void run_doctor(const std::string& json) {
  const Diagnosis diagnosis = diagnose();
  if (json.empty()) {
    print(diagnosis);
  } else {
    write_json_lines(json, {json_of(diagnosis)});
  }
  if (!diagnosis.healthy()) throw Failure("something is off here; see the lines above");
}

}  // namespace

void add_doctor(CLI::App& app) {
  CLI::App* command = app.add_subcommand("doctor", "Say what this build has, and check that it works here");
  const auto json = std::make_shared<std::string>();
  add_json_option(*command, *json);
  command->callback([json] { run_doctor(*json); });
}

}  // namespace peel::cli
