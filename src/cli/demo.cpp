// peel demo: four workers in one process all-reduce gradients of four shapes, three ways, and check every sum.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "cli/commands.h"
#include "cli/gradients.h"
#include "cli/measure.h"
#include "cli/numbers.h"
#include "cli/progress.h"

namespace peel::cli {
namespace {

constexpr std::uint32_t kWorkers = 4;

// Without vectors a sketch of a nearly dense array takes seconds: nobody should wait a minute for a demonstration.
int log2_elements() { return resolve(Backend::automatic) == Backend::reference ? 21 : 24; }

struct Shape {
  std::string_view title;
  std::string_view pattern;
  double density;
};
constexpr Shape kShapes[] = {
    {"embedding rows of 64", "rows:64", 0.035},
    {"single elements", "uniform", 0.01},
    {"runs of 64", "runs:64", 0.10},
    {"nearly dense", "uniform", 0.90},
};

constexpr std::string_view kRow = "{:<22} {:>7}  {:<6} {:<6} {:>6} {:>8} {:>9} {:>8} {:>9} {:>9} {:>5}  {}\n";

struct Row {
  std::string codec;
  std::string index = "-";
  std::string grain = "-";
  std::uint64_t bytes = 0;
  std::string encode = "-";
  std::string decode = "-";
  std::uint64_t lost = 0;
  std::uint64_t wrong = 0;
};

Row dense_row(const Gradients& gradients) {
  return {.codec = "dense", .bytes = gradients.dense_bytes(), .wrong = add_dense(gradients).wrong};
}

Row codec_row(const Gradients& gradients, Codec codec, unsigned threads) {
  const Measurement m = measure(gradients, {.codec = codec, .threads = threads, .repeat = 1});
  return {.codec = std::string(name(codec)),
          .index = std::string(name(m.plan.index())),
          .grain = fmt::format("{}", m.plan.grain()),
          .bytes = m.message_bytes(),
          .encode = show_seconds(m.encode_s),
          .decode = show_seconds(m.decode_s),
          .lost = m.recovery.lost,
          .wrong = m.verdict.wrong};
}

std::string show_exactness(const Row& row) {
  if (row.wrong != 0) return fmt::format("NO: {} wrong", row.wrong);
  return row.lost == 0 ? "yes" : "but for the lost";
}

void print_row(const Shape& shape, const Gradients& gradients, const Row& row) {
  const bool first = row.codec == "dense";
  const double bound = static_cast<double>(lower_bound_bytes(gradients));
  fmt::print(fmt::runtime(kRow), first ? shape.title : "", first ? show_percent(gradients.density()) : "", row.codec,
             row.index, row.grain, show_bytes(row.bytes), show_ratio(row.bytes, gradients.dense_bytes()),
             fmt::format("{:.2f}", static_cast<double>(row.bytes) / bound), row.encode, row.decode, row.lost,
             show_exactness(row));
}

// Returns how many elements were wrong.
std::uint64_t show_shape(const Shape& shape, unsigned threads) {
  std::vector<Row> rows;
  const bool terminal = isatty(STDERR_FILENO) != 0;
  const Gradients gradients(
      parse_patterns(shape.pattern).front(),
      {.elements = std::uint64_t{1} << log2_elements(), .density = shape.density, .workers = kWorkers});
  {
    FileOptions options;
    options.verbose = !terminal;
    Progress progress(options);  // its line must be gone before the rows appear
    const std::string what = fmt::format("{} at {}", shape.title, show_percent(gradients.density()));
    if (!terminal) progress.summary(fmt::format("measuring {}", what));
    progress.step(fmt::format("{}: dense", what));
    rows.push_back(dense_row(gradients));
    for (const Codec codec : {Codec::packed, Codec::sketch}) {
      progress.step(fmt::format("{}: {}", what, name(codec)));
      rows.push_back(codec_row(gradients, codec, threads));
    }
  }
  std::uint64_t wrong = 0;
  for (const Row& row : rows) {
    print_row(shape, gradients, row);
    wrong += row.wrong;
  }
  std::fflush(stdout);
  return wrong;
}

void run() {
  const unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  fmt::print("{} workers add up gradients of 2^{} float32, {} each; {} threads, backend {}\n\n", kWorkers,
             log2_elements(), show_bytes(std::uint64_t{4} << log2_elements()), threads,
             name(resolve(Backend::automatic)));
  fmt::print(fmt::runtime(kRow), "non-zeros", "density", "codec", "index", "grain", "bytes", "of dense", "x bound",
             "encode", "decode", "lost", "exact");
  std::uint64_t wrong = 0;
  for (const Shape& shape : kShapes) wrong += show_shape(shape, threads);
  fmt::print(
      "\nbytes: one worker's message; of dense: against sending the array; x bound: against the least that any code\n"
      "needs where non-zeros have no structure; exact: every element of the sum is equal to the one known "
      "beforehand.\n");
  if (wrong != 0) throw Failure(fmt::format("{} elements of the sums are wrong", wrong));
}

}  // namespace

void add_demo(CLI::App& app) {
  app.add_subcommand("demo", "Four workers all-reduce gradients of four shapes: bytes, times and exactness")
      ->callback(run);
}

}  // namespace peel::cli
