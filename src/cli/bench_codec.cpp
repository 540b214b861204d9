// peel bench codec: sweeps over shapes, sizes and codecs; every configuration is timed and verified.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/measure.h"
#include "cli/measurement_report.h"
#include "cli/numbers.h"
#include "cli/report_sink.h"
#include "cli/sweep.h"

namespace peel::cli {
namespace {

// As written; each may be a list.
struct Words {
  std::string elements = "2^24";
  std::string density = "0.01";
  std::string pattern = "uniform";
  std::string type = "float32";
  std::string workers = "1";
  std::string codec = "packed";
  std::string cells = "auto";
  std::string view = "dense";
  std::string index = "auto";
  std::string grain = "auto";
  std::string phase;
  std::string payload_ratio = "auto";
  std::string backend = "auto";
  std::string threads = "1";
  bool workers_given = false;
  bool estimate = false;
  bool cold_l2 = false;
  bool repeat_given = false;
  double overlap = 0.25;
  unsigned repeat = 3;
  std::uint64_t seed = 1;
  std::string json;
};

std::uint32_t parse_workers(std::string_view text) {
  const std::uint32_t workers = parse_small(text);
  if (workers == 0) throw CLI::ValidationError("--workers must be at least 1");
  return workers;
}

unsigned parse_threads(std::string_view text) {
  const std::uint32_t threads = parse_small(text);
  return threads != 0 ? threads : std::max(1u, std::thread::hardware_concurrency());
}

double parse_payload_ratio(std::string_view text) {
  if (text == "auto") return 0;
  try {
    const double ratio = std::stod(std::string(text));
    if (ratio > 0 && ratio <= 1000) return ratio;
  } catch (const std::exception&) {
  }
  throw CLI::ValidationError(fmt::format("'{}' is not for --payload-ratio; use auto, or a share as in 0.02", text));
}

// Empty: the best one.
std::optional<Grain> parse_grain(std::string_view text, const std::string& phase) {
  if (text == "auto") {
    if (phase.empty()) return std::nullopt;
    throw CLI::ValidationError("--grain auto finds the phase too; leave out --phase, or name a grain");
  }
  const Grain grain{parse_grain_size(text), phase.empty() ? 0 : parse_small(phase)};
  if (grain.phase >= grain.size) throw CLI::ValidationError("--phase must be below the grain");
  return grain;
}

struct BackendChoice {
  Device device = Device::host;
  Backend backend = Backend::automatic;
};

BackendChoice parse_backend(std::string_view text) {
  if (text == "auto") return {};
  if (text == "cuda") return {.device = Device::cuda};
  return {.backend = parse_name(text, {Backend::reference, Backend::cpu}, "--backend (or auto, or cuda)")};
}

// A GPU's times are short and its repeats cost nothing.
constexpr unsigned kGpuRepeats = 11;

// What is measured of each set of gradients.
std::vector<MeasureOptions> parse_measures(const Words& words) {
  std::vector<MeasureOptions> all(1);
  all[0].estimate = words.estimate;
  all[0].repeat = words.repeat;
  all[0].cold_l2 = words.cold_l2;
  all[0].seed = words.seed;
  // Multiplies the configurations by a list: the last one varies fastest.
  const auto sweep = [&all](const auto& values, auto set) {
    std::vector<MeasureOptions> more;
    for (const MeasureOptions& one : all) {
      for (const auto& value : values) set(more.emplace_back(one), value);
    }
    all.swap(more);
  };
  const auto view = [](std::string_view text) { return parse_name(text, kViews, "--view"); };
  const auto grain = [&](std::string_view text) { return parse_grain(text, words.phase); };
  sweep(parse_list(words.view, view), [](auto& o, View v) { o.view = v; });
  sweep(parse_list(words.grain, grain), [](auto& o, std::optional<Grain> v) { o.grain = v; });
  sweep(parse_list(words.codec, parse_codec), [](auto& o, Codec v) { o.codec = v; });
  sweep(parse_list(words.cells, parse_cells), [](auto& o, CellType v) { o.cells = v; });
  sweep(parse_list(words.index, parse_index), [](auto& o, Index v) { o.index = v; });
  sweep(parse_list(words.payload_ratio, parse_payload_ratio), [](auto& o, double v) { o.payload_ratio = v; });
  sweep(parse_list(words.backend, parse_backend), [&words](auto& o, const BackendChoice& v) {
    o.device = v.device;
    o.backend = v.backend;
    if (v.device == Device::cuda && !words.repeat_given) o.repeat = kGpuRepeats;
  });
  sweep(parse_list(words.threads, parse_threads), [](auto& o, unsigned v) { o.threads = v; });
  return all;
}

struct GradientCase {
  Pattern pattern;
  GradientOptions options;
};

std::uint32_t workers_of(const Pattern& pattern, std::uint32_t workers, const Words& words) {
  const auto files = static_cast<std::uint32_t>(pattern.files.size());
  if (!words.workers_given) return files;
  if (workers <= files) return workers;
  throw CLI::ValidationError(fmt::format("{} workers need as many files after npy:, which names {}", workers, files));
}

// Files have the size and density that they have: for them those lists are not swept.
std::vector<GradientCase> parse_gradients(const Words& words) {
  std::vector<GradientCase> all;
  const auto types = parse_list(words.type, parse_element_type);
  const auto elements = parse_list(words.elements, parse_count);
  const auto densities = parse_list(words.density, parse_share);
  const auto workers = parse_list(words.workers, parse_workers);
  for (const Pattern& pattern : parse_patterns(words.pattern)) {
    const bool loaded = pattern.kind == Pattern::Kind::npy;
    for (std::size_t size = 0; size < (loaded ? 1 : elements.size()); ++size) {
      for (std::size_t density = 0; density < (loaded ? 1 : densities.size()); ++density) {
        for (const ElementType type : types) {
          for (const std::uint32_t count : workers) {
            all.push_back({pattern,
                           {.elements = elements[size],
                            .density = densities[density],
                            .type = type,
                            .workers = loaded ? workers_of(pattern, count, words) : count,
                            .overlap = words.overlap,
                            .seed = words.seed}});
          }
        }
      }
    }
  }
  return all;
}

// What measuring it takes grows with its elements, which are not known yet of files.
double work_of(const GradientCase& one, const MeasureOptions& options) {
  return static_cast<double>(one.options.elements + 1) * (one.options.workers + 1) * (options.repeat + 1);
}

void run(const Words& words) {
  const std::vector<GradientCase> cases = parse_gradients(words);
  const std::vector<MeasureOptions> measures = parse_measures(words);
  ReportSink sink(words.json, table_heading());
  Progress progress;
  double work = 0;
  for (const GradientCase& one : cases) {
    for (const MeasureOptions& options : measures) work += work_of(one, options);
  }
  progress.expect(work);
  double done = 0;
  std::uint64_t wrong = 0;
  for (const GradientCase& one : cases) {
    progress.step(one.pattern.text);
    const Gradients gradients(one.pattern, one.options);
    std::string above = describe(one.pattern, gradients) + "\n";
    for (MeasureOptions options : measures) {
      options.progress = &progress;
      options.work = work_of(one, options);
      const Measurement measurement = measure(gradients, options);
      progress.clear();
      sink.add(above + table_row(gradients, measurement), to_json(one.pattern, gradients, measurement));
      progress.reach(done += options.work);
      above.clear();
      wrong += measurement.verdict.wrong;
    }
  }
  sink.finish();
  if (wrong != 0)
    throw Failure(fmt::format("{} decoded elements are wrong; see the column 'sum' or the field 'wrong'", wrong));
}

void add_gradient_options(CLI::App& app, Words& words) {
  app.add_option("--elements", words.elements, "Elements of the array, as in 67108864 or 2^26");
  app.add_option("--density", words.density, "Non-zero share of the union of all workers, as in 0.01 or 1%");
  app.add_option("--pattern", words.pattern,
                 "Where they are: uniform, runs:L, rows:L (Zipf), stride:S, or npy:PATH[,PATH...] with a gradient "
                 "(float) or mask (bool) for each worker");
  app.add_option("--type", words.type, "Of the elements")->type_name(one_of(kElementTypes));
  app.add_option("--workers", words.workers, "How many gradients are summed; with npy: the number of files");
  app.add_option("--overlap", words.overlap, "How likely a worker has what another one has")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--seed", words.seed, "Of the gradients and of the plan");
}

void add_codec_options(CLI::App& app, Words& words) {
  app.add_option("--codec", words.codec, "How values are coded")->type_name(one_of(kCodecs));
  app.add_option("--cells", words.cells, "How values travel; native only with packed")->type_name(one_of(kCells));
  app.add_option("--view", words.view, "Arrays, or sorted items with their values")->type_name(one_of(kViews));
  app.add_option("--index", words.index, "How the places of items are written")->type_name(one_of(kIndexes));
  app.add_option("--grain", words.grain, "Elements per item: auto, or a power of two from 1 to 1024");
  app.add_option("--phase", words.phase, "Element at which the first whole grain starts");
  app.add_option(
      "--payload-ratio", words.payload_ratio,
      "Fix a sketch's payload to this share of the dense size instead of sizing it: auto, or 0.02 and so on");
  app.add_flag("--estimate", words.estimate, "Estimate what does not peel, and report the error");
  app.add_option("--backend", words.backend, "Which implementation; cuda: the GPU, where the array lies already")
      ->type_name("{auto,reference,cpu,cuda}");
  app.add_flag("--cold-l2", words.cold_l2, "With cuda: flush the GPU's cache before every encode, decode and copy");
  app.add_option("--threads", words.threads, "Threads of each step, and of the copy it is compared with; 0: all cores");
  app.add_option("--repeat", words.repeat,
                 "Times are medians of this many (11 with cuda), after some that are not counted")
      ->check(CLI::Range(1, 1000));
  add_json_option(app, words.json);
}

}  // namespace

void add_bench_codec(CLI::App& bench) {
  CLI::App* codec = bench.add_subcommand("codec", "Encode, merge, decode and verify; lists such as 0.001,0.01 sweep");
  const auto words = std::make_shared<Words>();
  codec->option_defaults()->always_capture_default();
  add_gradient_options(*codec, *words);
  add_codec_options(*codec, *words);
  codec->callback([codec, words] {
    words->workers_given = codec->count("--workers") != 0;
    words->repeat_given = codec->count("--repeat") != 0;
    run(*words);
  });
}

}  // namespace peel::cli
