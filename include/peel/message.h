// What a worker sends: two flat arrays, `index` (words, combined by OR) and `payload` (cells, combined by SUM). Any
// collective may work on them in place.
#pragma once

#include <cstddef>
#include <cstdint>
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

  [[nodiscard]] std::uint64_t flags() const noexcept { return index.size() == 0 ? 0 : index[index.size() - 1]; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return index.size() * sizeof(std::uint64_t) + payload.size(); }
  template <typename T>
  [[nodiscard]] std::span<T> payload_as() noexcept {
    return {reinterpret_cast<T*>(payload.data()), payload.size() / sizeof(T)};
  }
};

// For files and sockets: a versioned header, the plan, both parts and a checksum (docs/format.md).
std::vector<std::byte> serialise(const Plan& plan, const Message& message);

struct Parsed {
  Plan plan;
  Message message;
};
Parsed parse(std::span<const std::byte> bytes);  // throws peel::Error (corrupt_message)

// How long a serialised message is, from its first kHeaderBytes bytes; for readers of a stream. Throws peel::Error.
inline constexpr std::size_t kHeaderBytes = 32 + Plan::kDescriptorBytes;
std::uint64_t serialised_bytes(std::span<const std::byte> header);

}  // namespace peel
