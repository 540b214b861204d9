#include "transport/switch/carriage.h"

#include <cstring>
#include <string>

#include "peel/error.h"

namespace peel::detail {
namespace {

constexpr unsigned kLow = 22;
constexpr unsigned kHigh = 21;

template <typename Small>
void widen(std::span<const std::byte> data, std::uint8_t* words) {
  for (std::size_t at = 0; at < data.size(); at += sizeof(Small), words += 4) {
    Small small{};
    std::memcpy(&small, data.data() + at, sizeof small);
    const std::uint32_t word = small;
    std::memcpy(words, &word, sizeof word);
  }
}

template <typename Small>
void narrow(const std::uint8_t* words, std::span<std::byte> data) {
  for (std::size_t at = 0; at < data.size(); at += sizeof(Small), words += 4) {
    std::uint32_t word = 0;
    std::memcpy(&word, words, sizeof word);
    const auto small = static_cast<Small>(word);
    std::memcpy(data.data() + at, &small, sizeof small);
  }
}

void split(std::span<const std::byte> data, std::uint8_t* words) {
  for (std::size_t at = 0; at < data.size(); at += 8, words += 12) {
    std::uint64_t value = 0;
    std::memcpy(&value, data.data() + at, sizeof value);
    const std::uint32_t limbs[3] = {static_cast<std::uint32_t>(value & ((1U << kLow) - 1)),
                                    static_cast<std::uint32_t>(value >> kLow & ((1U << kHigh) - 1)),
                                    static_cast<std::uint32_t>(value >> (kLow + kHigh))};
    std::memcpy(words, limbs, sizeof limbs);
  }
}

void join(const std::uint8_t* words, std::span<std::byte> data) {
  for (std::size_t at = 0; at < data.size(); at += 8, words += 12) {
    std::uint32_t limbs[3];
    std::memcpy(limbs, words, sizeof limbs);
    const std::uint64_t value =
        limbs[0] + (std::uint64_t{limbs[1]} << kLow) + (std::uint64_t{limbs[2]} << (kLow + kHigh));
    std::memcpy(data.data() + at, &value, sizeof value);
  }
}

}  // namespace

bool switch_offers(Collective::Kind kind, ElementType type) noexcept {
  return kind == Collective::Kind::bit_or || (kind == Collective::Kind::sum && is_integer(type));
}

Carriage::Carriage(const Collective& what) {
  if (!switch_offers(what.kind, what.type)) {
    throw Error(ErrorCode::unsupported, "A switch adds integers and ORs words, and cannot do a " +
                                            std::string(name(what.kind)) + " of " + std::string(name(what.type)) +
                                            "; use packed or sketch with fixed-point cells, or another transport.");
  }
  if (what.kind == Collective::Kind::bit_or) return;
  element_bytes_ = size_of(what.type);
  if (element_bytes_ == 8) element_words_ = 3;
}

void Carriage::load(std::span<const std::byte> data, std::uint8_t* words) const {
  switch (element_bytes_) {
    case 1:
      return widen<std::uint8_t>(data, words);
    case 2:
      return widen<std::uint16_t>(data, words);
    case 8:
      return split(data, words);
    default:
      std::memcpy(words, data.data(), data.size());
  }
}

void Carriage::unload(const std::uint8_t* words, std::span<std::byte> data) const {
  switch (element_bytes_) {
    case 1:
      return narrow<std::uint8_t>(words, data);
    case 2:
      return narrow<std::uint16_t>(words, data);
    case 8:
      return join(words, data);
    default:
      std::memcpy(data.data(), words, data.size());
  }
}

}  // namespace peel::detail
