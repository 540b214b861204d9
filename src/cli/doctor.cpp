// peel doctor: what this build has and whether it works here. The first thing to look at when something is off.
#include <fmt/format.h>
#include <CLI/Version.hpp>

#include <cstdlib>
#include <memory>
#include <thread>

#include "cli/commands.h"
#include "cli/gpus.h"
#include "cli/json.h"
#include "cli/numbers.h"
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
  return gpu_problem(plan_for(codec, a.size()), a, gradient(1));
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
  std::vector<GpuInfo> gpus;
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
  result.gpus = available_gpus();
  for (const Codec codec : {Codec::packed, Codec::sketch}) {
    if (result.gpus.empty()) break;
    result.checks.push_back(run_check("cuda", codec, [&] { return problem_on_gpu(codec); }));
  }
  result.inprocess = inprocess_problem();
  return result;
}

std::string libraries() {
  return fmt::format("fmt {}.{}.{}, CLI11 {}, nlohmann-json {}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100,
                     FMT_VERSION % 100, CLI11_VERSION, NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR,
                     NLOHMANN_JSON_VERSION_PATCH);
}

std::string transports() {
  std::string text;
  for (const TransportInfo& transport : available_transports()) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", transport.name);
    if (!transport.version.empty()) text += fmt::format(" ({})", transport.version);
  }
  return text;
}

// The library's, and the GPU's, which has verbs of its own.
std::vector<std::string> backends() {
  std::vector<std::string> names;
  for (const Backend backend : available_backends()) names.emplace_back(name(backend));
  if (built_with_cuda()) names.emplace_back("cuda");
  return names;
}

std::string show(const GpuInfo& gpu) {
  return fmt::format("{}, compute capability {}, {}B, {} MHz, memory {} MHz", gpu.name, gpu.capability,
                     show_bytes(gpu.memory_bytes), gpu.sm_clock_mhz, gpu.memory_clock_mhz);
}

void print(const Diagnosis& diagnosis) {
  const auto row = [](std::string_view label, std::string_view text) { fmt::print("{:<12} {}\n", label, text); };
  row("peel", PEEL_VERSION);
  row("compiler", __VERSION__);
  row("libraries", libraries());
  row("backends", fmt::format("{}", fmt::join(backends(), ", ")));
  row("chosen", diagnosis.problem.empty() ? diagnosis.chosen : diagnosis.problem);
  row("PEEL_BACKEND", diagnosis.forced.empty() ? "not set" : diagnosis.forced);
  row("vectors", simd_target().empty() ? "none: the cpu backend is not in this build" : simd_target());
  row("cores", fmt::format("{}", std::thread::hardware_concurrency()));
  for (const GpuInfo& gpu : diagnosis.gpus) row("GPU", show(gpu));
  if (diagnosis.gpus.empty()) row("GPU", built_with_cuda() ? "none here" : "none: this build has no CUDA");
  row("transports", transports());
  for (const Check& check : diagnosis.checks) {
    row("self-check",
        fmt::format("{} {}: {}", check.backend, name(check.codec), check.problem.empty() ? "ok" : check.problem));
  }
  row("self-check", fmt::format("inprocess sum: {}", diagnosis.inprocess.empty() ? "ok" : diagnosis.inprocess));
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
  Json transport_list = Json::array();
  for (const TransportInfo& transport : available_transports()) {
    transport_list.push_back({{"name", transport.name}, {"version", transport.version}});
  }
  return {{"version", PEEL_VERSION},
          {"compiler", __VERSION__},
          {"backends", backends()},
          {"chosen", diagnosis.chosen},
          {"peel_backend", diagnosis.forced},
          {"vectors", simd_target()},
          {"cores", std::thread::hardware_concurrency()},
          {"gpus", gpus},
          {"transports", transport_list},
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
  command->add_option("--json", *json, "Write JSON to this file, or to standard output for -")->type_name("FILE");
  command->callback([json] { run_doctor(*json); });
}

}  // namespace peel::cli
