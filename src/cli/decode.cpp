// peel decode: messages, merged or not, become gradients again, as flat .npy files.
#include <fmt/format.h>

#include <memory>
#include <optional>

#include "cli/commands.h"
#include "cli/message_file.h"
#include "cli/npy.h"
#include "cli/numbers.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "peel/codec.h"

namespace peel::cli {
namespace {

struct DecodeCommand {
  std::vector<std::string> inputs;
  bool estimate = false;
  bool allow_lost = false;
  std::optional<std::uint64_t> max_bytes;
  FileOptions files;
  Execution execution;
};

std::string without_suffix(const std::string& input) {
  const std::string suffix = kSuffix;
  const bool has_name =
      input.size() > suffix.size() && input.ends_with(suffix) && input[input.size() - suffix.size() - 1] != '/';
  if (!has_name) throw Failure(fmt::format("{} does not end in {}; name the output with -o", input, suffix));
  return input.substr(0, input.size() - suffix.size());
}

void report_lost(const DecodeCommand& command, const std::string& input, const Recovery& recovery, Progress& progress) {
  if (recovery.lost == 0) return;
  const std::string lost =
      fmt::format("{}: {} of {} items did not peel", input, show_count(recovery.lost), show_count(recovery.items));
  if (command.estimate) {
    progress.warning(lost + "; they were estimated");
  } else if (command.allow_lost) {
    progress.warning(lost + "; they are zero in the output");
  } else {
    throw Failure(lost + "; encode with more --items, or take them as --estimate or zeros (--allow-lost)");
  }
}

// Reading a message, decoding it and writing its array count as many bytes as the message has, each.
double work_of(const DecodeCommand& command) { return 3 * bytes_in(command.inputs); }

void decode_one(const DecodeCommand& command, const std::string& input, const std::string& output, Progress& progress) {
  progress.step(input + " : decoding");
  const Parsed parsed = load_message(input, progress.moved());
  check_plausible(input, parsed.message, "its array", parsed.plan.dense_bytes(), command.max_bytes);
  Buffer<std::byte> gradient(static_cast<std::size_t>(parsed.plan.dense_bytes()));
  gradient.fill_zero();  // lost items keep what was there
  const Dense x(gradient.data(), parsed.plan.elements(), parsed.plan.type());
  Recovery recovery;
  try {
    recovery = decode(parsed.plan, parsed.message, x, {.estimate = command.estimate, .execution = command.execution});
  } catch (const Error& error) {
    throw Failure(fmt::format("{}: {}", input, error.what()));
  }
  report_lost(command, input, recovery, progress);
  Output file(output, command.files.overwrite());
  const auto bytes = static_cast<double>(parsed.message.bytes());
  progress.advance(bytes);
  npy::write(file, {x.data, x.size, x.type}, progress.moved(bytes / static_cast<double>(parsed.plan.dense_bytes())));
  file.commit();
  progress.summary(
      fmt::format("{} : {} {}, {} items", input, show_count(x.size), name(x.type), show_count(recovery.items)));
}

void run_decode(const DecodeCommand& command) {
  const auto outputs = output_names(command.inputs, command.files, without_suffix);
  for (const std::string& output : outputs) check_output(output, command.files.overwrite());
  Progress progress(command.files);
  progress.expect(work_of(command));
  for (std::size_t i = 0; i < outputs.size(); ++i) decode_one(command, command.inputs[i], outputs[i], progress);
}

}  // namespace

void add_decode(CLI::App& app) {
  CLI::App* command = app.add_subcommand("decode", "Decode messages (.peel) into gradients (flat .npy)");
  const auto options = std::make_shared<DecodeCommand>();
  command->add_option("inputs", options->inputs, "Messages; - for standard input")->required()->type_name("A.peel");
  command->add_flag("--estimate", options->estimate, "Write the unbiased estimate of items that do not peel");
  command->add_flag("--allow-lost", options->allow_lost, "Write zeros for items that do not peel");
  add_parsed(*command, "--max-bytes", options->max_bytes, parse_count,
             "Largest array to write [64 MiB, or 1,000 times the message]");
  add_file_options(*command, options->files);
  add_execution_options(*command, options->execution);
  command->callback([options] { run_decode(*options); });
}

}  // namespace peel::cli
