// peel merge: the sum of messages, without decoding them. What an aggregator in the network would do.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "cli/commands.h"
#include "cli/message_file.h"
#include "cli/numbers.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "peel/codec.h"

namespace peel::cli {
namespace {

struct MergeOptions {
  std::vector<std::string> inputs;
  std::optional<std::uint64_t> max_bytes;
  FileOptions files;
  Execution execution;
};

// The first thing two plans differ in, in words.
std::string difference(const Plan& a, const Plan& b) {
  const auto differ = [](std::string_view what, const auto& left, const auto& right) {
    return fmt::format("{} {} and {}", what, left, right);
  };
  if (a.elements() != b.elements()) return differ("elements", a.elements(), b.elements());
  if (a.type() != b.type()) return differ("types", name(a.type()), name(b.type()));
  if (a.codec() != b.codec()) return differ("codecs", name(a.codec()), name(b.codec()));
  if (a.cells() != b.cells()) return differ("cells", name(a.cells()), name(b.cells()));
  if (a.index() != b.index()) return differ("indexes", name(a.index()), name(b.index()));
  if (a.grain() != b.grain()) return differ("grains", a.grain(), b.grain());
  if (a.phase() != b.phase()) return differ("phases", a.phase(), b.phase());
  if (a.scale() != b.scale()) return differ("scales", a.scale(), b.scale());
  if (a.workers() != b.workers()) return differ("workers", a.workers(), b.workers());
  if (a.seed() != b.seed()) return differ("seeds", a.seed(), b.seed());
  return differ("sizes for", a.expected_items(), b.expected_items()) + " items";
}

// Reading a byte and adding it to the sum count 1 each, and so does writing as much as the first message has.
double work_of(const MergeOptions& options) { return 2 * bytes_in(options.inputs); }

// A message whose workers are counted, and whose join takes no absurd memory: lists and packed filters are read out
// into a bitmap.
Parsed load_summand(const std::string& input, const MergeOptions& options, Progress& progress) {
  progress.step(input + " : merging");
  Parsed parsed = load_message(input, progress.moved());
  if (!parsed.message.workers) {
    throw Failure(fmt::format(
        "{} is of version 1 of the format and does not say how many workers it holds; encode its gradients again to "
        "merge it",
        input));
  }
  const Plan& plan = parsed.plan;
  if (plan.index() == Index::list || (plan.index() == Index::bloom && plan.codec() == Codec::packed)) {
    check_plausible(input, parsed.message, "reading its index", plan.items() / 8, options.max_bytes);
  }
  return parsed;
}

// Fixed cells wrap silently beyond the number of workers that they were scaled for. Integers wrap as integers do.
void check_room(const Plan& plan, std::uint64_t workers) {
  if (workers <= plan.most_workers()) return;
  throw Failure(
      fmt::format("the fixed-point cells leave room for {} workers and {} were given; encode with --workers {}",
                  plan.most_workers(), workers, workers));
}

void run_merge(const MergeOptions& options) {
  if (options.files.output.empty()) throw CLI::ValidationError("say where the sum goes: -o FILE, or -c for a pipe");
  check_one_pipe(options.inputs);
  check_output(options.files.output, options.files.overwrite());
  Progress progress(options.files);
  progress.expect(work_of(options));
  Parsed sum = load_summand(options.inputs.front(), options, progress);
  std::uint64_t workers = *sum.message.workers;
  for (std::size_t i = 1; i < options.inputs.size(); ++i) {
    const std::string& input = options.inputs[i];
    const Parsed next = load_summand(input, options, progress);
    if (!(next.plan == sum.plan)) {
      throw Failure(fmt::format("{} and {} have different plans ({}); encode {} again with --like {}",
                                options.inputs.front(), input, difference(sum.plan, next.plan), input,
                                options.inputs.front()));
    }
    workers = std::min(workers + *next.message.workers, Plan::kMostWorkers + 1);  // both are at most kMostWorkers + 1
    // Where there is no room, the other files are still counted, so that the complaint says for how many to plan.
    if (workers <= sum.plan.most_workers()) merge(sum.plan, sum.message, next.message, options.execution);
    progress.advance(static_cast<double>(next.message.bytes()));
  }
  check_room(sum.plan, workers);
  const std::uint64_t bytes = save_message(options.files.output, options.files.overwrite(), sum.plan, sum.message);
  progress.summary(fmt::format("{} : {} of dense ({} messages, {} bytes)", options.files.output,
                               show_ratio(bytes, sum.plan.dense_bytes()), options.inputs.size(), show_bytes(bytes)));
}

}  // namespace

void add_merge(CLI::App& app) {
  CLI::App* command = app.add_subcommand("merge", "Add messages of the same plan up, without decoding them");
  const auto options = std::make_shared<MergeOptions>();
  command->add_option("inputs", options->inputs, "Messages; - for standard input")->required()->type_name("A.peel");
  add_parsed(*command, "--max-bytes", options->max_bytes, parse_count,
             "Most memory to read an index into [64 MiB, or 1,000 times the message]");
  add_file_options(*command, options->files);
  add_execution_options(*command, options->execution);
  command->callback([options] { run_merge(*options); });
}

}  // namespace peel::cli
