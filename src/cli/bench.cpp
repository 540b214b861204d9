// peel bench: what is measured has a subcommand each.
#include <CLI/CLI.hpp>

#include "cli/commands.h"

namespace peel::cli {

void add_bench(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Measure on gradients drawn here or loaded");
  bench->require_subcommand(1);
  add_bench_codec(*bench);
  add_bench_allreduce(*bench);
  add_bench_switch(*bench);
}

}  // namespace peel::cli
