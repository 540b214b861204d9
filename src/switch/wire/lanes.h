// Which UDP port of a switch takes a slot: the same rule on both sides.
#pragma once

#include <cstdint>

namespace peel::detail {

constexpr std::uint32_t lane_of(std::uint32_t slot, std::uint32_t slot_count, std::uint32_t lanes) noexcept {
  return static_cast<std::uint32_t>(std::uint64_t{slot} * lanes / slot_count);
}

}  // namespace peel::detail
