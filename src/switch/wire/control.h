// Control packets, signed and read.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "switch/wire/mac.h"
#include "switch/wire/wire.h"

namespace peel::detail {

// What stands in every control packet.
peel_control make_control(peel_wire_verb verb) noexcept;

// What is on the wire: the packet with its MAC, then `more`.
std::vector<std::uint8_t> sign(std::string_view secret, peel_control control, std::span<const std::uint8_t> more = {});

// A control packet whose MAC is right; `datagram` may go on behind it.
std::optional<peel_control> open(std::string_view secret, std::span<const std::uint8_t> datagram);

// What a job is called on the wire.
std::uint64_t job_name(std::string_view name);

}  // namespace peel::detail
