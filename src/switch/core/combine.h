// The arithmetic of a switch: all there is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace peel::aggregator {

// `from` lies anywhere, as it does in a received buffer. The compiler makes vectors of both loops.
inline void sum_words(std::uint32_t* into, const std::uint8_t* from, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t word = 0;
    std::memcpy(&word, from + 4 * i, sizeof word);
    into[i] += word;
  }
}

inline void or_words(std::uint32_t* into, const std::uint8_t* from, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t word = 0;
    std::memcpy(&word, from + 4 * i, sizeof word);
    into[i] |= word;
  }
}

}  // namespace peel::aggregator
