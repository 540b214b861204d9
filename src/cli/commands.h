// One function per subcommand: each adds itself to the program and runs from its CLI11 callback. A callback throws
// peel::Error or Failure; main() turns that into one sentence on standard error and the exit code.
#pragma once

#include "cli/failure.h"

namespace CLI {
class App;
}  // namespace CLI

namespace peel::cli {

void add_demo(CLI::App& app);
void add_bench(CLI::App& app);
void add_bench_codec(CLI::App& bench);
void add_bench_allreduce(CLI::App& bench);
void add_bench_switch(CLI::App& bench);  // adds nothing where there is no switch
void add_plan(CLI::App& app);
void add_inspect(CLI::App& app);
void add_encode(CLI::App& app);
void add_merge(CLI::App& app);
void add_decode(CLI::App& app);
void add_show(CLI::App& app);
void add_switch(CLI::App& app);  // adds nothing where there is none
void add_switch_status(CLI::App& app);
void add_doctor(CLI::App& app);      // what this build has: backends, vectors, libraries
void add_completion(CLI::App& app);  // for all that was added before

}  // namespace peel::cli
