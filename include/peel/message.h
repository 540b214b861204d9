// What a worker sends: two flat arrays, `index` (words, combined by OR) and `payload` (cells, combined by SUM). Any
// collective may work on them in place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "peel/buffer.h"
#include "peel/plan.h"

namespace peel {

// Bits of the flag word, the last word of every index. They survive OR, so one worker's trouble reaches all.
inline constexpr std::uint64_t kFlagOverflow = 1;  // a value did not fit the scale

class Message {
 public:
  Message() = default;
  explicit Message(const Plan& plan);  // an empty message: the sum of nothing

  Buffer<std::uint64_t> index;  // bitmap, Bloom rows or coded list, then the flag word
  Buffer<std::byte> payload;    // cells of plan.cells(), or of plan.type() where that is `native`

  // How many workers' gradients are added up here: none in an empty message, one after encode; merge adds them up. The
  // arrays do not carry it. Whoever combines them by other means, such as a collective, says here how many there were,
  // and an array that came without a number has none: then it can be decoded, but neither merged nor serialised.
  std::optional<std::uint64_t> workers;

  [[nodiscard]] std::uint64_t flags() const noexcept { return index.size() == 0 ? 0 : index[index.size() - 1]; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return index.size() * sizeof(std::uint64_t) + payload.size(); }
  template <typename T>
  [[nodiscard]] std::span<T> payload_as() noexcept {
    return {reinterpret_cast<T*>(payload.data()), payload.size() / sizeof(T)};
  }
};

// For files and sockets: a versioned header, the plan, the number of workers, both parts and a checksum
// (docs/format.md). Throws peel::Error where the message does not say how many workers it holds, or holds more than
// plan.most_workers().
std::vector<std::byte> serialise(const Plan& plan, const Message& message);

struct Parsed {
  Plan plan;
  Message message;
};
// Throws peel::Error (corrupt_message). It allocates no more than it is given. Messages of version 1 of the format have
// no number of workers.
Parsed parse(std::span<const std::byte> bytes);

// How long a serialised message is, from its first kHeaderBytes bytes; for readers of a stream. Throws peel::Error.
inline constexpr std::size_t kHeaderBytes = 40 + Plan::kDescriptorBytes;
std::uint64_t serialised_bytes(std::span<const std::byte> header);

// How large a decoded array may be, in bytes, before a reader should ask whoever wants it: 64 MiB, or a thousand times
// the message if that is more. Sparse gradients are rarely that sparse, and whoever crafts a message has no limit.
// `peel decode` refuses beyond it; compare with plan.dense_bytes() before you allocate.
std::uint64_t plausible_dense_bytes(const Message& message) noexcept;

}  // namespace peel
