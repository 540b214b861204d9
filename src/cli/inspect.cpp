// peel inspect: what real gradients, or masks of their non-zeros, would gain. One file per worker; only their union is
// kept, one bit per element, so the files may together be far larger than memory.
#include <fmt/format.h>

#include <memory>
#include <optional>

#include "cli/bitmap.h"
#include "cli/commands.h"
#include "cli/json.h"
#include "cli/npy.h"
#include "cli/numbers.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "peel/grain.h"
#include "peel/plan.h"

namespace peel::cli {
namespace {

struct InspectOptions {
  std::vector<std::string> inputs;
  std::optional<ElementType> type;  // of masks and raw bytes
  std::string json;
};

struct Worker {
  std::string file;
  std::uint64_t nonzeros = 0;
  Runs runs;
};

struct Size {
  Plan plan;
  bool smallest = false;  // of its codec, among those that combine by OR
};

struct Findings {
  std::vector<Worker> workers;
  std::uint64_t elements = 0;
  ElementType type = ElementType::float32;
  bool of_masks = false;
  std::uint64_t nonzeros = 0;  // of the union
  Runs runs;
  GrainChoice best_packed;
  GrainChoice best_sketch;
  std::uint64_t lower_bound = 0;
  std::vector<Size> sizes;

  [[nodiscard]] double share(std::uint64_t count) const {
    return elements == 0 ? 0 : static_cast<double>(count) / static_cast<double>(elements);
  }
};

// Reading a byte and looking at it count 1 each; choosing both grains, as much as looking at one file.
double work_of(const InspectOptions& options) {
  const double bytes = bytes_in(options.inputs);
  return bytes == 0 ? 0 : 2 * bytes + bytes_in({options.inputs.front()});
}

Bitmap unite_files(const InspectOptions& options, Findings& findings, Progress& progress) {
  progress.expect(work_of(options));
  std::optional<Bitmap> joined;
  for (const std::string& input : options.inputs) {
    progress.step(input + " : reading");
    const npy::Array array = npy::load(input, options.type, progress.moved());
    if (!joined) {
      joined.emplace(array.size);
      findings.elements = array.size;
      findings.of_masks = array.is_mask;
      findings.type = array.is_mask ? options.type.value_or(ElementType::float32) : array.type;
    }
    if (array.size != findings.elements) {
      throw Failure(fmt::format("{} has {} elements but {} has {}; give one file per worker of the same model", input,
                                show_count(array.size), options.inputs.front(), show_count(findings.elements)));
    }
    Bitmap own(array.size);
    const std::uint64_t nonzeros = own.unite(array.view());
    findings.workers.push_back({input, nonzeros, own.runs()});
    joined->unite(own);
    progress.advance(static_cast<double>(array.data.size()));
  }
  return std::move(*joined);
}

PlanOptions plan_options(const Findings& findings, Codec codec, Index index) {
  return {.elements = findings.elements,
          .type = findings.type,
          .workers = static_cast<std::uint32_t>(findings.workers.size()),
          .codec = codec,
          .index = index};
}

void add_sizes(Findings& findings, const Bitmap& joined, Codec codec, std::uint32_t grain, std::uint32_t phase) {
  const std::uint64_t items = joined.items(grain, phase);
  for (const Index index : {Index::bitmap, Index::bloom, Index::list}) {
    PlanOptions options = plan_options(findings, codec, index);
    options.grain = grain;
    options.phase = phase;
    options.expected_items = items;
    findings.sizes.push_back({Plan::make(options)});
  }
}

void mark_smallest(std::vector<Size>& sizes, Codec codec) {
  Size* smallest = nullptr;
  for (Size& size : sizes) {
    if (size.plan.codec() != codec || size.plan.index() == Index::list) continue;
    if (smallest == nullptr || size.plan.message_bytes() < smallest->plan.message_bytes()) smallest = &size;
  }
  smallest->smallest = true;
}

Findings inspect(const InspectOptions& options) {
  Findings findings;
  Progress progress;
  const Bitmap joined = unite_files(options, findings, progress);
  progress.step("choosing grains");
  findings.nonzeros = joined.count();
  findings.runs = joined.runs();
  findings.lower_bound =
      lower_bound_bytes(findings.elements, findings.nonzeros, static_cast<std::uint32_t>(8 * size_of(findings.type)));
  for (const Codec codec : {Codec::packed, Codec::sketch}) {
    GrainChoice& best = codec == Codec::packed ? findings.best_packed : findings.best_sketch;
    best = best_grain(joined.words(), plan_options(findings, codec, Index::automatic));
    add_sizes(findings, joined, codec, 1, 0);
    if (best.grain != 1) add_sizes(findings, joined, codec, best.grain, best.phase);
    mark_smallest(findings.sizes, codec);
  }
  return findings;
}

constexpr auto kLeft = Column::Side::left;

void print_choice(std::string_view label, const GrainChoice& choice) {
  fmt::print("{:<20} {}, phase {}; found in {}{}\n", label, choice.grain, choice.phase, show_seconds(choice.seconds),
             choice.sampled ? " on sampled windows" : "");
}

void print_sizes(const Findings& findings) {
  const Table table{{"codec", 6, kLeft}, {"grain", 9}, {"index", 6, kLeft}, {"items", 12}, {"index", 7},
                    {"payload", 7},      {"bytes", 7}, {"/dense", 7},       {"/bound", 7}, {"", 1}};
  fmt::print("\n{}", table.heading());
  for (const auto& [plan, smallest] : findings.sizes) {
    const std::string grain =
        plan.phase() == 0 ? fmt::format("{}", plan.grain()) : fmt::format("{}+{}", plan.grain(), plan.phase());
    fmt::print("{}", table.row({name(plan.codec()),
                                grain,
                                name(plan.index()),
                                show_count(plan.expected_items()),
                                show_bytes(plan.index_bytes()),
                                show_bytes(plan.payload_bytes()),
                                show_bytes(plan.message_bytes()),
                                {show_ratio(plan.message_bytes(), plan.dense_bytes()),
                                 smallest && plan.message_bytes() < plan.dense_bytes() ? Ink::good : Ink::plain},
                                show_ratio(plan.message_bytes(), findings.lower_bound),
                                smallest ? "*" : ""}));
  }
}

void print_supports(const Findings& findings) {
  const Table table{{"worker", 20, kLeft}, {"density", 7}, {"non-zeros", 13}, {"runs", 12},
                    {"mean", 7},           {"median", 6},  {"longest", 7}};
  const auto row = [&](std::string_view label, std::uint64_t nonzeros, const Runs& runs) {
    fmt::print("{}",
               table.row({label, show_percent(findings.share(nonzeros)), show_count(nonzeros), show_count(runs.count),
                          fmt::format("{:.1f}", runs.mean), show_bytes(runs.median), show_bytes(runs.longest)}));
  };
  fmt::print("\n{}", table.heading());
  for (const Worker& worker : findings.workers) row(shortened_path(worker.file, 20), worker.nonzeros, worker.runs);
  row("union", findings.nonzeros, findings.runs);
}

void print(const Findings& findings) {
  const std::uint64_t dense = findings.elements * size_of(findings.type);
  fmt::print("{} elements, {} bytes dense as {}{}\n", show_count(findings.elements), show_bytes(dense),
             name(findings.type), findings.of_masks ? " (masks; another type with --type)" : "");
  print_supports(findings);
  fmt::print("\n");
  print_choice("best grain, packed", findings.best_packed);
  print_choice("best grain, sketch", findings.best_sketch);
  fmt::print("{:<20} {} of dense, for a support without structure\n", "lower bound",
             show_ratio(findings.lower_bound, dense));
  print_sizes(findings);
  fmt::print("\n{}", wrapped("* is the smallest of its codec that combines by OR, as bitmap and bloom do in any "
                             "all-reduce; a list combines only by peel merge or all-to-all."));
}

Json json_of(const GrainChoice& choice) {
  return {{"grain", choice.grain}, {"phase", choice.phase}, {"sampled", choice.sampled}, {"seconds", choice.seconds}};
}

Json json_of(const Runs& runs) {
  return {{"count", runs.count}, {"mean", runs.mean}, {"median", runs.median}, {"longest", runs.longest}};
}

Json json_of(const Findings& findings) {
  Json files = Json::array();
  for (const auto& [file, nonzeros, runs] : findings.workers) {
    files.push_back(
        {{"file", file}, {"nonzeros", nonzeros}, {"density", findings.share(nonzeros)}, {"runs", json_of(runs)}});
  }
  Json sizes = Json::array();
  for (const auto& [plan, smallest] : findings.sizes) {
    sizes.push_back({{"codec", name(plan.codec())},
                     {"index", name(plan.index())},
                     {"grain", plan.grain()},
                     {"phase", plan.phase()},
                     {"smallest", smallest},
                     {"items", plan.expected_items()},
                     {"index_bytes", plan.index_bytes()},
                     {"payload_bytes", plan.payload_bytes()},
                     {"message_bytes", plan.message_bytes()}});
  }
  return {{"elements", findings.elements},
          {"type", name(findings.type)},
          {"masks", findings.of_masks},
          {"dense_bytes", findings.elements * size_of(findings.type)},
          {"lower_bound_bytes", findings.lower_bound},
          {"workers", files},
          {"nonzeros", findings.nonzeros},
          {"density", findings.share(findings.nonzeros)},
          {"runs", json_of(findings.runs)},
          {"best_packed", json_of(findings.best_packed)},
          {"best_sketch", json_of(findings.best_sketch)},
          {"sizes", sizes}};
}

void run_inspect(const InspectOptions& options) {
  const Findings findings = inspect(options);
  if (options.json.empty()) {
    print(findings);
  } else {
    write_json_lines(options.json, {json_of(findings)});
  }
}

}  // namespace

void add_inspect(CLI::App& app) {
  CLI::App* command = app.add_subcommand("inspect", "Report what gradients (.npy, one per worker) would gain");
  const auto options = std::make_shared<InspectOptions>();
  command->add_option("inputs", options->inputs, "Gradients, or boolean masks of their non-zeros")
      ->required()
      ->type_name("A.npy");
  add_parsed(*command, "--type", options->type, parse_element_type,
             "Element type to assume for masks [float32], or that of two raw bytes")
      ->type_name(one_of(kElementTypes));
  add_json_option(*command, options->json);
  command->callback([options] { run_inspect(*options); });
}

}  // namespace peel::cli
