// HMAC-SHA256 (RFC 2104, FIPS 180-4), which signs control packets: a few a second, so that it needs no speed, and no
// library.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace peel::detail {

using Digest = std::array<std::uint8_t, 32>;

Digest sha256(std::span<const std::uint8_t> bytes);
Digest hmac_sha256(std::span<const std::uint8_t> key, std::span<const std::uint8_t> bytes);

// The first eight bytes, the lowest first.
std::uint64_t first_word(const Digest& digest) noexcept;

inline std::span<const std::uint8_t> bytes_of(std::string_view text) noexcept {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

}  // namespace peel::detail
