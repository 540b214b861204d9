// peel encode: gradients in .npy files become messages. Several files are several workers and get one plan together,
// so that their messages can be merged; --like takes the plan of a message that exists.
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <optional>

#include "cli/commands.h"
#include "cli/joint_plan.h"
#include "cli/message_file.h"
#include "cli/npy.h"
#include "cli/numbers.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "peel/codec.h"

namespace peel::cli {
namespace {

struct EncodeOptions {
  std::vector<std::string> inputs;
  std::string like;
  std::optional<ElementType> raw;
  PlanWishes wishes;
  FileOptions files;
  Execution execution;
};

// Gradients are large, so each is read when it is needed: once to plan, once to encode. A pipe gives only once, and a
// lone file need not be read twice.
class Gradients {
 public:
  explicit Gradients(const EncodeOptions& options) : options_(options), kept_(options.inputs.size()) {}

  const npy::Array& get(std::size_t i, Progress& progress) {
    if (kept_[i]) return *kept_[i];
    const std::string& path = options_.inputs[i];
    progress.step(path + " : reading");
    npy::Array array = npy::load(path, options_.raw, progress.moved());
    if (array.is_mask) {
      throw Failure(
          fmt::format("{} holds booleans, and only numbers can be summed; see a mask's gain with peel inspect", path));
    }
    std::optional<npy::Array>& place = path == kPipe || kept_.size() == 1 ? kept_[i] : passing_;
    place = std::move(array);
    return *place;
  }

 private:
  const EncodeOptions& options_;
  std::vector<std::optional<npy::Array>> kept_;
  std::optional<npy::Array> passing_;  // valid until the next one
};

// Reading a byte, planning with it and encoding it count 1 each. Several gradients are read twice.
double work_of(const EncodeOptions& options) {
  const double bytes = bytes_in(options.inputs);
  if (!options.like.empty()) return 2 * bytes;
  return bytes * (options.inputs.size() > 1 ? 4 : 3);
}

Plan choose_plan(const EncodeOptions& options, Gradients& gradients, Progress& progress) {
  if (!options.like.empty()) return load_message(options.like).plan;
  JointPlan joint;
  for (std::size_t i = 0; i < options.inputs.size(); ++i) {
    const npy::Array& gradient = gradients.get(i, progress);
    progress.step(options.inputs[i] + " : planning");
    joint.add(gradient, options.inputs[i]);
    progress.advance(static_cast<double>(gradient.data.size()));
  }
  return joint.make(options.wishes);
}

void check_fits(const Plan& plan, const npy::Array& gradient, const std::string& input, const std::string& like) {
  if (gradient.size == plan.elements() && gradient.type == plan.type()) return;
  throw Failure(fmt::format("{} has {} {} but {} is a message of {} {}; encode the gradient that belongs to it", input,
                            show_count(gradient.size), name(gradient.type), like, show_count(plan.elements()),
                            name(plan.type())));
}

std::string summary_of(const std::string& input, const Plan& plan, std::uint64_t bytes) {
  return fmt::format("{} : {} ({} -> {} bytes, {}, {} index, grain {})", input, show_ratio(bytes, plan.dense_bytes()),
                     show_bytes(plan.dense_bytes()), show_bytes(bytes), name(plan.codec()), name(plan.index()),
                     plan.grain());
}

Message encode_one(const Plan& plan, const npy::Array& gradient, const std::string& input, const Execution& execution) {
  Message message(plan);
  try {
    encode(plan, gradient.view(), message, execution);
  } catch (const Error& error) {
    throw Failure(fmt::format("{}: {}", input, error.what()));
  }
  if ((message.flags() & kFlagOverflow) != 0) {
    throw Failure(
        fmt::format("{} has a value too large for scale {}; encode all workers' files in one call, or with a "
                    "smaller --scale",
                    input, plan.scale()));
  }
  return message;
}

void run_encode(const EncodeOptions& options) {
  if (options.wishes.grain && options.wishes.phase >= *options.wishes.grain) {
    throw CLI::ValidationError("--phase must be below the grain");
  }
  const auto outputs =
      output_names(options.inputs, options.files, [](const std::string& input) { return input + kSuffix; });
  for (const std::string& output : outputs) check_output(output, options.files.overwrite());
  Progress progress(options.files);
  progress.expect(work_of(options));
  Gradients gradients(options);
  const Plan plan = choose_plan(options, gradients, progress);
  for (std::size_t i = 0; i < options.inputs.size(); ++i) {
    const std::string& input = options.inputs[i];
    const npy::Array& gradient = gradients.get(i, progress);
    check_fits(plan, gradient, input, options.like);
    progress.step(input + " : encoding");
    const Message message = encode_one(plan, gradient, input, options.execution);
    const std::uint64_t bytes = save_message(outputs[i], options.files.overwrite(), plan, message);
    progress.advance(static_cast<double>(gradient.data.size()));
    progress.summary(summary_of(input, plan, bytes));
  }
}

template <typename T>
std::optional<T> parse_auto(const std::string& text) {
  if (text == "auto") return std::nullopt;
  T value{};
  if (!CLI::detail::lexical_cast(text, value)) {
    throw CLI::ValidationError("'" + text + "' is neither auto nor a number in range");
  }
  return value;
}

ElementType parse_raw(const std::string& text) {
  const ElementType type = parse_element_type(text);
  if (type == ElementType::bfloat16 || type == ElementType::float16) return type;
  throw CLI::ValidationError("two raw bytes are bfloat16 or float16; other types are named in the .npy file");
}

void add_plan_wishes(CLI::App& command, PlanWishes& wishes) {
  PlanOptions& options = wishes.options;
  std::vector<CLI::Option*> all = {
      add_parsed(command, "--codec", options.codec, parse_codec, "How values are coded [packed]")
          ->type_name(one_of(kCodecs)),
      add_parsed(command, "--cells", options.cells, parse_cells, "How values travel [auto]")->type_name(one_of(kCells)),
      add_parsed(command, "--index", options.index, parse_index, "How the places of items are written [auto]")
          ->type_name(one_of(kIndexes)),
      add_parsed(
          command, "--grain", wishes.grain,
          [](const std::string& text) { return text == "auto" ? std::nullopt : std::optional(parse_grain_size(text)); },
          "Elements per item, auto or 1, 2, 4 ... 1024 [auto]"),
      command.add_option("--phase", wishes.phase, "Where the first whole grain starts; needs --grain N")
          ->type_name("")
          ->needs("--grain"),
      add_parsed(command, "--items", wishes.items, parse_count,
                 "Items in the union of all workers [those of the files, scaled up to --workers]"),
      command.add_option("--workers", wishes.workers, "Messages that will be merged [the files, at least 2]")
          ->check(CLI::Range(std::uint64_t{1}, Plan::kMostWorkers))
          ->type_name("W"),
      add_parsed(command, "--scale", wishes.scale, parse_auto<std::int32_t>,
                 "Fixed cells hold round(x * 2^scale) [auto]"),
      add_parsed(
          command, "--headroom", options.headroom_permille,
          [](const std::string& text) { return static_cast<std::uint32_t>(std::lround(1000 * parse_share(text))); },
          "Room for this share of items more [0]"),
      command.add_option("--seed", options.seed, "Of all hashes")->capture_default_str()->type_name(""),
  };
  CLI::Option* like = command.get_option("--like");
  for (CLI::Option* option : all) like->excludes(option);
}

}  // namespace

void add_encode(CLI::App& app) {
  CLI::App* command = app.add_subcommand("encode", "Encode gradients (.npy) into messages (.peel)");
  const auto options = std::make_shared<EncodeOptions>();
  command->add_option("inputs", options->inputs, "Gradients, one per worker; - for standard input")
      ->required()
      ->type_name("A.npy");
  command->add_option("--like", options->like, "Use the plan of this message, so that both can be merged")
      ->type_name("FILE.peel");
  add_parsed(*command, "--type", options->raw, parse_raw, "What two raw bytes per element (V2) are")
      ->type_name("{bfloat16,float16}");
  add_file_options(*command, options->files);
  add_plan_wishes(*command, options->wishes);
  add_execution_options(*command, options->execution);
  command->callback([options] { run_encode(*options); });
}

}  // namespace peel::cli
