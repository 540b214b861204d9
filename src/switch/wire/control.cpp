#include "switch/wire/control.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace peel::detail {
namespace {

constexpr std::size_t kMacBytes = sizeof(peel_control::mac);

// Over all of the datagram, with zeros where the MAC is to stand.
Digest mac_of(std::string_view secret, std::vector<std::uint8_t> datagram) {
  std::fill_n(datagram.begin() + offsetof(peel_control, mac), kMacBytes, std::uint8_t{0});
  return hmac_sha256(bytes_of(secret), datagram);
}

}  // namespace

peel_control make_control(peel_wire_verb verb) noexcept {
  peel_control control{};
  control.magic = PEEL_WIRE_MAGIC;
  control.version = PEEL_WIRE_VERSION;
  control.kind = PEEL_KIND_CONTROL;
  control.verb = static_cast<std::uint8_t>(verb);
  return control;
}

std::vector<std::uint8_t> sign(std::string_view secret, peel_control control, std::span<const std::uint8_t> more) {
  std::vector<std::uint8_t> datagram(sizeof control + more.size());
  std::memcpy(datagram.data(), &control, sizeof control);
  std::copy(more.begin(), more.end(), datagram.begin() + sizeof control);
  const Digest mac = mac_of(secret, datagram);
  std::copy_n(mac.begin(), kMacBytes, datagram.begin() + offsetof(peel_control, mac));
  return datagram;
}

std::optional<peel_control> open(std::string_view secret, std::span<const std::uint8_t> datagram) {
  peel_control control;
  if (datagram.size() < sizeof control) return std::nullopt;
  std::memcpy(&control, datagram.data(), sizeof control);
  if (control.magic != PEEL_WIRE_MAGIC || control.version != PEEL_WIRE_VERSION || control.kind != PEEL_KIND_CONTROL) {
    return std::nullopt;
  }
  const Digest right = mac_of(secret, {datagram.begin(), datagram.end()});
  std::uint8_t difference = 0;  // all bytes are compared, so that the time tells nothing
  for (std::size_t i = 0; i < kMacBytes; ++i) difference |= static_cast<std::uint8_t>(right[i] ^ control.mac[i]);
  if (difference != 0) return std::nullopt;
  return control;
}

std::uint64_t job_name(std::string_view name) { return first_word(sha256(bytes_of(name))); }

}  // namespace peel::detail
