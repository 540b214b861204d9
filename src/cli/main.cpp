// peel: the codec on files, its measurements, and what it would gain. Exit codes: 0 done, 1 failed, 2 misused.
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <new>

#include "cli/commands.h"
#include "cli/files.h"
#include "peel/error.h"

namespace {

constexpr int kFailed = 1;
constexpr int kMisused = 2;

// Without fmt: what reports an exception must not throw one.
int complain(const char* sentence, int code) noexcept {
  std::fflush(stdout);
  std::fprintf(stderr, "peel: %s\n", sentence);
  return code;
}

// With the name of its code behind the sentence, by which scripts tell errors of the library apart.
int complain(const peel::Error& error) noexcept {
  std::fflush(stdout);
  std::fprintf(stderr, "peel: %s [%s]\n", error.what(), peel::name(error.code()).data());
  return kFailed;
}

// Help and version are also "errors" to CLI11, with exit code 0.
int explain(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return app.exit(error);
  std::string command = "peel";
  for (const CLI::App* sub = &app; !sub->get_subcommands().empty(); command += " " + sub->get_name()) {
    sub = sub->get_subcommands().front();
  }
  return complain(fmt::format("{}; try {} --help", error.what(), command).c_str(), kMisused);
}

void add_commands(CLI::App& app) {
  app.set_version_flag("--version", "peel " PEEL_VERSION);
  app.require_subcommand(1);
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
