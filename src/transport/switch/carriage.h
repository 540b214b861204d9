// How elements travel in the 32-bit words of a switch, which only adds modulo 2^32 and ORs. 32-bit integers and words
// of an OR go as they are; smaller integers in a word each; 64-bit ones as three limbs of 22, 21 and 21 bits, which
// leave room for the carries of 64 workers and are put together afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "peel/communicator.h"

namespace peel::detail {

class Carriage {
 public:
  // Throws peel::Error (unsupported) for what a switch cannot do.
  explicit Carriage(const Collective& what);

  // Bytes of the collective's data that fit into so many words.
  [[nodiscard]] std::size_t bytes_in(std::size_t words) const noexcept {
    return words / element_words_ * element_bytes_;
  }
  [[nodiscard]] std::size_t words_for(std::size_t bytes) const noexcept {
    return bytes / element_bytes_ * element_words_;
  }
  // Whether the data are their own words.
  [[nodiscard]] bool plain() const noexcept { return element_bytes_ == 4; }

  void load(std::span<const std::byte> data, std::uint8_t* words) const;
  void unload(const std::uint8_t* words, std::span<std::byte> data) const;

 private:
  std::size_t element_bytes_ = 4;
  std::size_t element_words_ = 1;
};

// Whether a switch can do it, in whatever words.
bool switch_offers(Collective::Kind kind, ElementType type) noexcept;

}  // namespace peel::detail
