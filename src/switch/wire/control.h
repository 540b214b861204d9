// Control packets, signed and read.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "switch/wire/check.h"
#include "switch/wire/mac.h"
#include "switch/wire/wire.h"

namespace peel::detail {

// What stands in every control packet.
peel_control make_control(peel_wire_verb verb) noexcept;

// What is on the wire: the packet as it is, then zeros up to so many bytes.
std::vector<std::uint8_t> pad(const peel_control& control, std::size_t bytes = sizeof(peel_control));

// The packet with its MAC, then `more`, which the MAC covers too.
std::vector<std::uint8_t> sign(std::string_view secret, peel_control control, std::span<const std::uint8_t> more = {});

// What a datagram says it is: long enough, with the magic, version and kind of control packets. Its MAC was not looked
// at.
std::optional<peel_control> read_control(std::span<const std::uint8_t> datagram);

// Whether the MAC is right: of the control packet, and in STATUS of what follows it.
bool is_signed(std::string_view secret, std::span<const std::uint8_t> datagram);

// The name in a control packet or a record of one.
std::string name_of(const char (&name)[PEEL_WIRE_NAME_BYTES]);
void set_name(char (&name)[PEEL_WIRE_NAME_BYTES], std::string_view text);  // at most 63 bytes

// The key of a job's packets travels in ADMITTED, exclusive-or'ed with this, which only those with the secret can make.
std::array<std::uint8_t, PEEL_WIRE_KEY_BYTES> mask_of(std::string_view secret, const peel_control& admitted);
PacketKey packet_key(const std::array<std::uint8_t, PEEL_WIRE_KEY_BYTES>& bytes) noexcept;

// A secret as both sides take it: without the blanks and line ends around it. Throws peel::Error
// (invalid_argument) for one that can be guessed: short, of few characters, a word repeated, or keys in a row.
std::string usable_secret(std::string_view text);

}  // namespace peel::detail
