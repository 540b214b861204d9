// Files and pipes with the habits of zstd: "-" is standard input or output, nothing is overwritten unless forced,
// nothing binary goes to a terminal, and a file appears under its name only when it is complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "peel/buffer.h"

namespace peel::cli {

inline constexpr const char* kPipe = "-";

// Told how many bytes were read or written since it was told last.
using Moved = std::function<void(std::uint64_t bytes)>;

class Input {
 public:
  explicit Input(const std::string& path);  // throws Failure
  ~Input();
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  // Fills `bytes` as far as the input goes and says how far that was.
  std::size_t read(std::span<std::byte> bytes);

  // Appends exactly `count` bytes, or throws Failure. Memory grows with what arrives, not with what was promised.
  void append(Buffer<std::byte>& bytes, std::uint64_t count, const Moved& moved = {});

  // Throws Failure if there is anything left.
  void expect_end();

  [[nodiscard]] const std::string& label() const noexcept { return label_; }  // for sentences
  [[nodiscard]] std::optional<std::uint64_t> bytes_left() const noexcept;     // unknown for pipes

 private:
  int descriptor_ = -1;
  std::string label_;
  std::optional<std::uint64_t> size_;
  std::uint64_t position_ = 0;
};

struct OutputOptions {
  bool force = false;                                                        // overwrite, and write to a terminal
  const char* advice = "overwrite it with -f or name another file with -o";  // where the file exists
};

// What the user says of the files that a subcommand writes, and of what it tells on the way.
struct FileOptions {
  std::string output;  // of -o, "-" with -c, else empty
  bool force = false;
  bool quiet = false;
  bool verbose = false;

  [[nodiscard]] OutputOptions overwrite() const { return {.force = force}; }
};

// At most one at a time: a signal must find the partial file to remove.
class Output {
 public:
  Output(const std::string& path, OutputOptions options);  // throws Failure
  ~Output();                                               // removes what was not committed
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void write(std::span<const std::byte> bytes, const Moved& moved = {});  // throws Failure
  void commit();                                                          // gives the file its name; throws Failure

 private:
  void open_beside(const OutputOptions& options);

  int descriptor_ = -1;
  std::string label_;
  std::string target_;  // empty when written in place: pipes and devices
  std::string temporary_;
  bool force_ = false;
};

// How many bytes files have together, for a Progress; 0 where one is a pipe, of which nobody knows.
double bytes_in(const std::vector<std::string>& paths);

// Throws Failure if Output(path, options) would: before the work is done rather than after.
void check_output(const std::string& path, OutputOptions options);

// Interrupts remove the partial file and then end the program as they would have.
void remove_partial_files_on_signals();

}  // namespace peel::cli
