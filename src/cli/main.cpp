// peel: the codec on files, its measurements, and what it would gain. Exit codes: 0 done, 1 failed, 2 misused.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cstdio>
#include <exception>
#include <memory>
#include <new>

#include "cli/commands.h"
#include "cli/files.h"
#include "cli/help.h"
#include "cli/misuse.h"
#include "cli/terminal.h"
#include "peel/error.h"

namespace {

using peel::cli::begin_ink;
using peel::cli::end_ink;
using peel::cli::Ink;

constexpr int kFailed = 1;
constexpr int kMisused = 2;

// Without fmt: what reports an exception must not throw one.
int complain(const char* sentence, int code) noexcept {
  std::fflush(stdout);
  std::fprintf(stderr, "%speel:%s %s\n", begin_ink(Ink::bad, stderr), end_ink(Ink::bad, stderr), sentence);
  return code;
}

// With the name of its code behind the sentence, by which scripts tell errors of the library apart.
int complain(const peel::Error& error) noexcept {
  std::fflush(stdout);
  std::fprintf(stderr, "%speel:%s %s [%s]\n", begin_ink(Ink::bad, stderr), end_ink(Ink::bad, stderr), error.what(),
               peel::name(error.code()).data());
  return kFailed;
}

// Help and version are also "errors" to CLI11, with exit code 0.
int explain(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0 && !peel::cli::names_no_subcommand(app)) return app.exit(error);
  return complain(peel::cli::explain_misuse(app, error).c_str(), kMisused);
}

void add_commands(CLI::App& app) {
  app.set_version_flag("--version", "peel " PEEL_VERSION);
  app.require_subcommand(1);
  app.formatter(std::make_shared<peel::cli::HelpFormatter>());  // subcommands inherit it
  app.footer("Exit status: 0 done, 1 failed, 2 misused. See also: man peel");
  peel::cli::add_demo(app);
  peel::cli::add_bench(app);
  peel::cli::add_plan(app);
  peel::cli::add_inspect(app);
  peel::cli::add_encode(app);
  peel::cli::add_merge(app);
  peel::cli::add_decode(app);
  peel::cli::add_show(app);
  peel::cli::add_switch(app);
  peel::cli::add_doctor(app);
  peel::cli::add_completion(app);
}

int run(int argc, char** argv) {
  CLI::App app("Lossless homomorphic compression of sparse gradients", "peel");
  add_commands(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return explain(app, error);
  }
  // A full disk behind a redirection shows only here.
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return complain("cannot write standard output", kFailed);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  peel::cli::remove_partial_files_on_signals();
  try {
    return run(argc, argv);
  } catch (const std::bad_alloc&) {
    return complain("there is not enough memory for this", kFailed);
  } catch (const peel::Error& error) {
    return complain(error);
  } catch (const std::exception& error) {  // Failure and what the system throws
    return complain(error.what(), kFailed);
  }
}
