// The check of a packet in user space.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "switch/wire/wire.h"

namespace peel::detail {

inline constexpr std::size_t kHeaderWords = sizeof(peel_packet) / sizeof(std::uint32_t);

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

// Of a header, whatever its check is now, and the `header.words` words that follow it.
inline std::uint64_t check_of(peel_packet header, const void* words) noexcept {
  header.check = 0;
  peel_check sums{};
  add_to_check(sums, &header, kHeaderWords, 0);
  add_to_check(sums, words, header.words, kHeaderWords);
  return peel_check_value(&sums);
}

}  // namespace peel::detail
