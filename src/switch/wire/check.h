// The check of a packet in user space.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "switch/wire/siphash.h"
#include "switch/wire/wire.h"

namespace peel::detail {

inline constexpr std::size_t kHeaderWords = sizeof(peel_packet) / sizeof(std::uint32_t);

// Of the packets of a job that is signed.
struct PacketKey {
  std::uint64_t first = 0;
  std::uint64_t second = 0;
};

// The words lie anywhere, as they do in a received buffer. `index` is that of the first one in the packet.
inline void add_to_check(peel_check& sums, const void* words, std::size_t count, std::uint32_t index) noexcept {
  const auto* bytes = static_cast<const unsigned char*>(words);
  std::uint64_t plain = 0;
  std::uint64_t weighted = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    std::uint32_t word = 0;
    std::memcpy(&word, bytes + std::size_t{4} * i, sizeof word);
    plain += word;
    weighted += std::uint64_t{word} * (index + i);
  }
  sums.plain += plain;
  sums.weighted += weighted;
}

inline std::uint64_t keyed_check_of(const peel_packet& header, const void* words, const PacketKey& key) noexcept {
  peel_siphash state;
  peel_siphash_begin(&state, key.first, key.second);
  const auto add = [&](const void* from, std::size_t eights) {
    const auto* bytes = static_cast<const unsigned char*>(from);
    for (std::size_t i = 0; i < eights; ++i) {
      std::uint64_t eight = 0;
      std::memcpy(&eight, bytes + 8 * i, sizeof eight);
      peel_siphash_add(&state, eight);
    }
  };
  add(&header, sizeof header / 8);
  add(words, header.words / 2);
  std::uint32_t rest = 0;
  if (header.words % 2 != 0) {
    std::memcpy(&rest, static_cast<const unsigned char*>(words) + std::size_t{4} * (header.words - 1), sizeof rest);
  }
  return peel_siphash_end(&state, rest, sizeof header + std::size_t{4} * header.words);
}

// Of a header, whatever its check is now, and the `header.words` words that follow it. With a key, only those who have
// it can make the check.
inline std::uint64_t check_of(peel_packet header, const void* words, const PacketKey* key = nullptr) noexcept {
  header.check = 0;
  if (key != nullptr) return keyed_check_of(header, words, *key);
  peel_check sums{};
  add_to_check(sums, &header, kHeaderWords, 0);
  add_to_check(sums, words, header.words, kHeaderWords);
  return peel_check_value(&sums);
}

}  // namespace peel::detail
