#include "cli/message_file.h"

#include <fmt/format.h>

#include "cli/failure.h"
#include "cli/numbers.h"
#include "peel/error.h"

namespace peel::cli {

Parsed load_message(const std::string& path, const Moved& moved) {
  Input input(path);
  Buffer<std::byte> bytes(kHeaderBytes);
  const std::size_t got = input.read(bytes);
  try {
    if (got < kHeaderBytes) {
      throw Error(ErrorCode::corrupt_message, got == 0 ? "It is empty." : "It is too short to be a message.");
    }
    const std::uint64_t total = serialised_bytes(bytes);
    if (total < kHeaderBytes) throw Error(ErrorCode::corrupt_message, "Its header is damaged.");
    input.append(bytes, total - kHeaderBytes, moved);
    input.expect_end();
    return parse(bytes);
  } catch (const Error& error) {
    throw Failure(fmt::format("{} is not a whole message: {}", input.label(), error.what()));
  }
}

void check_plausible(const std::string& path, const Message& message, std::string_view what, std::uint64_t bytes,
                     std::optional<std::uint64_t> allowed) {
  if (bytes <= allowed.value_or(plausible_dense_bytes(message))) return;
  throw Failure(fmt::format("{} has {} bytes and {} takes {}; if you trust the file, allow it with --max-bytes {}",
                            path, show_count(message.bytes()), what, show_count(bytes), bytes));
}

std::uint64_t save_message(const std::string& path, OutputOptions options, const Plan& plan, const Message& message) {
  Output output(path, options);
  const std::vector<std::byte> bytes = serialise(plan, message);
  output.write(bytes);
  output.commit();
  return bytes.size();
}

}  // namespace peel::cli
