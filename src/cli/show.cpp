// peel show: what a message is, without decoding it.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>

#include "cli/commands.h"
#include "cli/json.h"
#include "cli/message_file.h"
#include "cli/numbers.h"
#include "cli/progress.h"
#include "cli/terminal.h"

namespace peel::cli {
namespace {

struct ShowOptions {
  std::vector<std::string> inputs;
  std::string json;
};

Json json_of(const std::string& input, const Parsed& parsed) {
  const Plan& plan = parsed.plan;
  return {
      {"file", input},
      {"fingerprint", fmt::format("{:016x}", plan.fingerprint())},
      {"elements", plan.elements()},
      {"type", name(plan.type())},
      {"codec", name(plan.codec())},
      {"cells", name(plan.cells())},
      {"index", name(plan.index())},
      {"grain", plan.grain()},
      {"phase", plan.phase()},
      {"workers", plan.workers()},
      {"held_workers", parsed.message.workers ? Json(*parsed.message.workers) : Json(nullptr)},
      {"scale", plan.scale()},
      {"seed", plan.seed()},
      {"items", plan.items()},
      {"expected_items", plan.expected_items()},
      {"blocks", plan.blocks()},
      {"cells_per_block", plan.cells_per_block()},
      {"message_bytes", parsed.message.bytes()},
      {"index_bytes", parsed.message.index.size() * sizeof(std::uint64_t)},
      {"payload_bytes", parsed.message.payload.size()},
      {"dense_bytes", plan.dense_bytes()},
      {"error_bound", plan.error_bound()},
      {"overflow", (parsed.message.flags() & kFlagOverflow) != 0},
  };
}

// How many workers are added up in it, and how many may be.
std::string show_workers(const Plan& plan, const Message& message) {
  std::string text = message.workers ? show_count(*message.workers) : "an unknown number (version 1 of the format)";
  if (plan.most_workers() != Plan::kMostWorkers) text += fmt::format(", with room for {}", plan.most_workers());
  return text;
}

void print(const std::string& input, const Parsed& parsed) {
  const Plan& plan = parsed.plan;
  const Message& message = parsed.message;
  const std::string size = fmt::format("{} of dense ({} of {} bytes)", show_ratio(message.bytes(), plan.dense_bytes()),
                                       show_count(message.bytes()), show_count(plan.dense_bytes()));
  fmt::print("{}: {}\n", inked(Ink::heading, input), size);
  print_fact("  holds",
             fmt::format("index {}, payload {} bytes", show_count(message.index.size() * sizeof(std::uint64_t)),
                         show_count(message.payload.size())));
  if ((message.flags() & kFlagOverflow) != 0) {
    print_fact("  overflow", "a value overflowed the scale, it cannot be decoded", Ink::bad);
  }
  print_fact("  workers", show_workers(plan, message));
  print_fact("  gradient", fmt::format("{} {}, planned for {} workers", show_count(plan.elements()), name(plan.type()),
                                       plan.workers()));
  print_fact("  codec",
             fmt::format("{}, {} cells, {} index", name(plan.codec()), name(plan.cells()), name(plan.index())));
  print_fact("  grain", fmt::format("{}, phase {}; {} items, {} expected", plan.grain(), plan.phase(),
                                    show_count(plan.items()), show_count(plan.expected_items())));
  if (plan.codec() == Codec::sketch) {
    print_fact("  sketch",
               fmt::format("{} blocks of {} cells", show_count(plan.blocks()), show_count(plan.cells_per_block())));
  }
  if (plan.error_bound() != 0) {
    print_fact("  scale", fmt::format("2^{}, error at most {:.3g} in the sum of {} workers", plan.scale(),
                                      plan.error_bound(), plan.workers()));
  }
  print_fact("  fingerprint", fmt::format("{:016x}, seed {}", plan.fingerprint(), plan.seed()));
}

void run_show(const ShowOptions& options) {
  std::vector<Json> reports;
  Progress progress;
  progress.expect(bytes_in(options.inputs));
  for (const std::string& input : options.inputs) {
    progress.step(input + " : reading");
    const Parsed parsed = load_message(input, progress.moved());
    progress.clear();
    if (options.json.empty()) {
      print(input, parsed);
    } else {
      reports.push_back(json_of(input, parsed));
    }
  }
  if (!options.json.empty()) write_json_lines(options.json, reports);
}

}  // namespace

void add_show(CLI::App& app) {
  CLI::App* command = app.add_subcommand("show", "Say what a message is");
  const auto options = std::make_shared<ShowOptions>();
  command->add_option("inputs", options->inputs, "Messages; - for standard input")->required()->type_name("A.peel");
  add_json_option(*command, options->json);
  command->callback([options] { run_show(*options); });
}

}  // namespace peel::cli
