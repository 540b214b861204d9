#include "cli/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cli/failure.h"

namespace peel::cli {
namespace {

// One system call moves at most this much: Linux cuts at 2 GiB anyway, and pipes give 64 KiB.
constexpr std::size_t kChunk = std::size_t{1} << 24;

[[noreturn]] void fail(const std::string& what, const std::string& label) {
  throw Failure(fmt::format("cannot {} {}: {}", what, label, std::strerror(errno)));
}

// Where a signal handler finds the partial file. A plain array: a handler may not touch a std::string.
std::array<char, PATH_MAX> partial_path{};
volatile std::sig_atomic_t partial_exists = 0;

void on_signal(int number) {
  if (partial_exists != 0) unlink(partial_path.data());
  std::signal(number, SIG_DFL);
  raise(number);
}

void remember_partial(const std::string& path) {
  if (path.size() >= partial_path.size()) return;
  std::memcpy(partial_path.data(), path.c_str(), path.size() + 1);
  partial_exists = 1;
}

// Through symbolic links, so that forcing replaces the file and not the link.
std::string resolved(const std::string& path) {
  char* real = realpath(path.c_str(), nullptr);
  if (real == nullptr) return path;
  std::string result = real;
  std::free(real);
  return result;
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

mode_t permissions_of_new_files() {
  const mode_t mask = umask(0);
  umask(mask);
  return 0666 & ~mask;
}

// Moves without replacing where the file system can; a hard link fails on an existing name, which is all we need.
bool move_to_free_name(const std::string& from, const std::string& to) {
  if (link(from.c_str(), to.c_str()) == 0) return unlink(from.c_str()) == 0;
  if (errno == EEXIST) return false;
  struct stat status {};
  if (lstat(to.c_str(), &status) == 0) {
    errno = EEXIST;
    return false;
  }
  return rename(from.c_str(), to.c_str()) == 0;
}

}  // namespace

Input::Input(const std::string& path) : label_(path) {
  if (path == kPipe) {
    descriptor_ = STDIN_FILENO;
    label_ = "standard input";
    if (isatty(descriptor_) != 0) throw Failure("standard input is a terminal; name a file or pipe one in");
  } else {
    descriptor_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor_ < 0) fail("open", label_);
  }
  struct stat status {};
  if (fstat(descriptor_, &status) != 0) fail("read", label_);
  if (S_ISDIR(status.st_mode)) throw Failure(fmt::format("{} is a directory; name a file in it", label_));
  // A redirected file may have been read in part before.
  const off_t here = S_ISREG(status.st_mode) ? lseek(descriptor_, 0, SEEK_CUR) : -1;
  if (here >= 0 && here <= status.st_size) size_ = static_cast<std::uint64_t>(status.st_size - here);
}

Input::~Input() {
  if (descriptor_ > STDIN_FILENO) close(descriptor_);
}

std::size_t Input::read(std::span<std::byte> bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = ::read(descriptor_, bytes.data() + done, std::min(kChunk, bytes.size() - done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("read", label_);
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  position_ += done;
  return done;
}

std::optional<std::uint64_t> Input::bytes_left() const noexcept {
  if (!size_) return std::nullopt;
  return *size_ > position_ ? *size_ - position_ : 0;
}

void Input::append(Buffer<std::byte>& bytes, std::uint64_t count, const Moved& moved) {
  const auto truncated = [&](std::uint64_t have) {
    return Failure(fmt::format("{} is truncated: it promises {} more bytes where {} are", label_, count, have));
  };
  const auto left = bytes_left();
  if (left && *left < count) throw truncated(*left);
  if (left) bytes.reserve(bytes.size() + static_cast<std::size_t>(count));
  for (std::uint64_t done = 0; done < count;) {
    const std::size_t old = bytes.size();
    bytes.resize(old + static_cast<std::size_t>(std::min<std::uint64_t>(kChunk, count - done)));
    const std::span<std::byte> fresh{bytes.data() + old, bytes.size() - old};
    const std::size_t got = read(fresh);
    done += got;
    if (got < fresh.size()) throw truncated(done);
    if (moved) moved(got);
  }
}

void Input::expect_end() {
  std::byte next{};
  if (read({&next, 1}) != 0) {
    throw Failure(fmt::format("{} goes on after its end; it is damaged, or several were joined into one", label_));
  }
}

double bytes_in(const std::vector<std::string>& paths) {
  double bytes = 0;
  for (const std::string& path : paths) {
    struct stat status {};
    if (path == kPipe || stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return 0;
    bytes += static_cast<double>(status.st_size);
  }
  return bytes;
}

void check_output(const std::string& path, OutputOptions options) {
  if (path == kPipe) {
    if (isatty(STDOUT_FILENO) != 0 && !options.force) {
      throw Failure("standard output is a terminal; redirect it, or name a file with -o");
    }
    return;
  }
  if (path.empty()) throw Failure("the output has no name; give one with -o");
  struct stat status {};
  if (stat(path.c_str(), &status) == 0) {
    if (S_ISDIR(status.st_mode)) throw Failure(fmt::format("{} is a directory; name a file with -o", path));
    if (S_ISREG(status.st_mode) && !options.force) {
      throw Failure(fmt::format("{} already exists; {}", path, options.advice));
    }
    return;
  }
  const std::string folder = folder_of(path);
  if (!folder.empty() && stat(folder.c_str(), &status) != 0) fail("write into", folder);
}

Output::Output(const std::string& path, OutputOptions options) : label_(path), force_(options.force) {
  check_output(path, options);
  if (path == kPipe) {
    descriptor_ = STDOUT_FILENO;
    label_ = "standard output";
    return;
  }
  struct stat status {};
  if (stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    descriptor_ = open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (descriptor_ < 0) fail("write", label_);
    return;
  }
  open_beside(options);
}

void Output::open_beside(const OutputOptions& options) {
  target_ = resolved(label_);
  temporary_ = folder_of(target_) + ".peel-XXXXXX";
  descriptor_ = mkostemp(temporary_.data(), O_CLOEXEC);
  if (descriptor_ < 0) fail("write", label_);
  remember_partial(temporary_);
  struct stat status {};
  const bool replaces = options.force && stat(target_.c_str(), &status) == 0;
  // Where the file system has no permissions this fails, and nothing is lost.
  [[maybe_unused]] const int ignored =
      fchmod(descriptor_, replaces ? status.st_mode & 07777 : permissions_of_new_files());
}

Output::~Output() {
  if (descriptor_ > STDERR_FILENO) close(descriptor_);
  if (!temporary_.empty()) {
    unlink(temporary_.c_str());
    partial_exists = 0;
  }
}

void Output::write(std::span<const std::byte> bytes, const Moved& moved) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(descriptor_, bytes.data(), std::min(kChunk, bytes.size()));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail("write", label_);
    bytes = bytes.subspan(static_cast<std::size_t>(put));
    if (moved) moved(static_cast<std::uint64_t>(put));
  }
}

void Output::commit() {
  if (descriptor_ > STDERR_FILENO) {
    const int closed = close(descriptor_);
    descriptor_ = -1;
    if (closed != 0) fail("write", label_);
  }
  if (temporary_.empty()) return;
  const bool moved = force_ ? rename(temporary_.c_str(), target_.c_str()) == 0 : move_to_free_name(temporary_, target_);
  if (!moved) fail("write", label_);
  partial_exists = 0;
  temporary_.clear();
}

void remove_partial_files_on_signals() {
  for (const int number : {SIGHUP, SIGINT, SIGPIPE, SIGTERM}) {
    // What the caller told us to ignore (nohup) stays ignored.
    if (std::signal(number, on_signal) == SIG_IGN) std::signal(number, SIG_IGN);
  }
}

}  // namespace peel::cli
