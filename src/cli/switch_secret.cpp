#include "cli/switch_secret.h"

#include <CLI/CLI.hpp>

namespace peel::cli {

void add_secret_option(CLI::App& command, std::string& file) {
  command
      .add_option("--secret-file", file,
                  "Every line is a secret that lets workers into the switch; workers use the first (default: "
                  "$PEEL_SWITCH_SECRET)")
      ->type_name("FILE");
}

}  // namespace peel::cli

#ifdef PEEL_HAVE_SWITCH

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <vector>

#include "cli/failure.h"
#include "peel/error.h"
#include "switch/wire/control.h"

namespace peel::cli {
namespace {

constexpr std::string_view kBlank = " \t\r\n";

std::string_view trim(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

struct Line {
  unsigned number = 0;  // from 1
  std::string text;     // without blanks at its ends
};

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

// The group may read it, since that is how orchestrators give files to programs that are not root.
void refuse_if_others_have(std::FILE* open, const std::string& file) {
  struct stat status {};
  if (fstat(fileno(open), &status) != 0) {
    throw Failure(fmt::format("cannot tell who may read {}; put the secret of the switch into a plain file", file));
  }
  if (S_ISCHR(status.st_mode)) return;  // a terminal
  if (status.st_uid != 0 && status.st_uid != geteuid()) {
    throw Failure(fmt::format(
        "{0} belongs to another user, who can write it and so let himself in; make it yours, with 'chown {1} {0}'",
        file, geteuid()));
  }
  if ((status.st_mode & S_IROTH) != 0) {
    throw Failure(
        fmt::format("everybody on this machine can read {0}; make it yours alone, with 'chmod 600 {0}'", file));
  }
  if ((status.st_mode & (S_IWOTH | S_IWGRP)) != 0) {
    throw Failure(
        fmt::format("others can write {0}, and so let themselves in; make it yours alone, with 'chmod 600 {0}'", file));
  }
}

std::string read_text(const std::string& file) {
  const std::unique_ptr<std::FILE, CloseFile> open(std::fopen(file.c_str(), "re"));
  const std::string unreadable = fmt::format("cannot read {}; write the secret of the switch there", file);
  if (!open) throw Failure(unreadable);
  refuse_if_others_have(open.get(), file);
  std::string text;
  std::array<char, 4096> part{};
  while (const std::size_t count = std::fread(part.data(), 1, part.size(), open.get())) text.append(part.data(), count);
  if (std::ferror(open.get()) != 0) throw Failure(unreadable);
  return text;
}

// The lines of a file that hold something; those that begin with # are comments.
std::vector<Line> read_lines(const std::string& file) {
  std::istringstream in(read_text(file));
  std::vector<Line> lines;
  std::string text;
  for (unsigned number = 1; std::getline(in, text); ++number) {
    const std::string_view held = trim(text);
    if (!held.empty() && held.front() != '#') lines.push_back({number, std::string(held)});
  }
  return lines;
}

// The reason why a secret cannot be used comes with the line where it stands.
std::string usable(const std::string& file, const Line& line, std::string_view secret) {
  try {
    return detail::usable_secret(secret);
  } catch (const Error& error) {
    throw Failure(fmt::format("{}, line {}: {}", file, line.number, error.what()));
  }
}

std::vector<std::string> read_all(const std::string& file) {
  std::vector<std::string> secrets;
  if (file.empty()) {
    if (const char* set = std::getenv("PEEL_SWITCH_SECRET"); set != nullptr && !trim(set).empty()) {
      secrets.push_back(detail::usable_secret(set));
    }
  } else {
    for (const Line& line : read_lines(file)) secrets.push_back(usable(file, line, line.text));
  }
  if (secrets.empty()) {
    throw Failure("a switch needs a secret; name a file with --secret-file, or set PEEL_SWITCH_SECRET");
  }
  return secrets;
}

aggregator::Tenant read_tenant(const std::string& file, const Line& line) {
  const std::size_t end = line.text.find_first_of(kBlank);
  if (end == std::string::npos) {
    throw Failure(
        fmt::format("{}, line {}: a tenant is the prefix of its jobs (* for all other jobs), blanks, and its "
                    "secret, as in 'vision- 1f0e...'",
                    file, line.number));
  }
  const std::string prefix = line.text.substr(0, end);
  if (prefix.size() >= PEEL_WIRE_NAME_BYTES) {
    throw Failure(fmt::format("{}, line {}: no job has a name of more than {} bytes; use a shorter prefix", file,
                              line.number, PEEL_WIRE_NAME_BYTES - 1));
  }
  return {prefix == "*" ? "" : prefix, usable(file, line, std::string_view(line.text).substr(end))};
}

}  // namespace

void refuse_unless_plain(const std::string& file) {
  struct stat status {};
  if (file.empty() || stat(file.c_str(), &status) != 0 || S_ISREG(status.st_mode)) return;
  throw Failure(
      fmt::format("{} is not a plain file, which alone can be read again without waiting for somebody; the secrets "
                  "stay as they are",
                  file));
}

std::string read_secret(const std::string& file) { return read_all(file).front(); }

aggregator::Secrets read_secrets(const std::string& secret_file, const std::string& tenants_file) {
  std::vector<aggregator::Tenant> tenants;
  if (tenants_file.empty()) {
    for (const std::string& secret : read_all(secret_file)) tenants.push_back({"", secret});
    return aggregator::Secrets(tenants);
  }
  for (const Line& line : read_lines(tenants_file)) tenants.push_back(read_tenant(tenants_file, line));
  if (tenants.empty()) {
    throw Failure(
        fmt::format("{} names no tenant; write lines of a job prefix, blanks and a secret there", tenants_file));
  }
  return aggregator::Secrets(tenants);
}

}  // namespace peel::cli

#endif
