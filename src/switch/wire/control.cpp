#include "switch/wire/control.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstring>
#include <set>

#include "peel/error.h"

namespace peel::detail {
namespace {

constexpr std::size_t kShortestSecret = 16;
constexpr std::size_t kFewestCharacters = 7;  // different ones; of 'openssl rand -hex 16', one in 10^9 has fewer
constexpr std::size_t kShortestPeriod = 10;   // a word that is repeated is no longer a secret than the word

// With zeros where the MAC is to stand.
Digest mac_of(std::string_view secret, std::span<const std::uint8_t> datagram) {
  std::vector<std::uint8_t> covered(datagram.begin(), datagram.end());
  std::fill_n(covered.begin() + offsetof(peel_control, mac), PEEL_WIRE_MAC_BYTES, std::uint8_t{0});
  return hmac_sha256(bytes_of(secret), covered);
}

// After how many characters it begins anew.
std::size_t period_of(std::string_view text) {
  std::size_t period = 1;
  while (!text.starts_with(text.substr(period))) ++period;
  return period;
}

// Whether most characters stand beside their neighbours in the alphabet or on a keyboard.
bool is_sequence(std::string_view text) {
  constexpr std::string_view kRows = "01234567890 abcdefghijklmnopqrstuvwxyz qwertyuiop asdfghjkl zxcvbnm";
  std::size_t steps = 0;
  for (std::size_t i = 1; i < text.size(); ++i) {
    const auto small = [&](std::size_t at) {
      return static_cast<char>(std::tolower(static_cast<unsigned char>(text[at])));
    };
    const std::string pair{small(i - 1), small(i)};
    const bool beside = kRows.find(pair) != std::string_view::npos ||
                        kRows.find(std::string(pair.rbegin(), pair.rend())) != std::string_view::npos;
    if (pair[0] == pair[1] || beside) ++steps;
  }
  return 4 * steps >= 3 * (text.size() - 1);
}

bool can_be_guessed(std::string_view text) {
  return text.size() < kShortestSecret || std::set<char>(text.begin(), text.end()).size() < kFewestCharacters ||
         period_of(text) < kShortestPeriod || is_sequence(text);
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

std::vector<std::uint8_t> pad(const peel_control& control, std::size_t bytes) {
  std::vector<std::uint8_t> datagram(std::max(bytes, sizeof control));
  std::memcpy(datagram.data(), &control, sizeof control);
  return datagram;
}

std::vector<std::uint8_t> sign(std::string_view secret, peel_control control, std::span<const std::uint8_t> more) {
  std::vector<std::uint8_t> datagram(sizeof control + more.size());
  std::memcpy(datagram.data(), &control, sizeof control);
  std::copy(more.begin(), more.end(), datagram.begin() + sizeof control);
  const Digest mac = mac_of(secret, datagram);
  std::copy_n(mac.begin(), PEEL_WIRE_MAC_BYTES, datagram.begin() + offsetof(peel_control, mac));
  return datagram;
}

std::optional<peel_control> read_control(std::span<const std::uint8_t> datagram) {
  peel_control control;
  if (datagram.size() < sizeof control) return std::nullopt;
  std::memcpy(&control, datagram.data(), sizeof control);
  if (control.magic != PEEL_WIRE_MAGIC || control.version != PEEL_WIRE_VERSION || control.kind != PEEL_KIND_CONTROL) {
    return std::nullopt;
  }
  return control;
}

bool is_signed(std::string_view secret, std::span<const std::uint8_t> datagram) {
  if (datagram.size() < sizeof(peel_control)) return false;
  const bool all = datagram[offsetof(peel_control, verb)] == PEEL_VERB_STATUS;
  const Digest right = mac_of(secret, all ? datagram : datagram.first(sizeof(peel_control)));
  const std::uint8_t* mac = datagram.data() + offsetof(peel_control, mac);
  std::uint8_t difference = 0;  // all bytes are compared, so that the time tells nothing
  for (std::size_t i = 0; i < PEEL_WIRE_MAC_BYTES; ++i) difference |= static_cast<std::uint8_t>(right[i] ^ mac[i]);
  return difference == 0;
}

std::string name_of(const char (&name)[PEEL_WIRE_NAME_BYTES]) { return {name, strnlen(name, PEEL_WIRE_NAME_BYTES)}; }

void set_name(char (&name)[PEEL_WIRE_NAME_BYTES], std::string_view text) {
  std::fill_n(name, PEEL_WIRE_NAME_BYTES, '\0');
  text.substr(0, PEEL_WIRE_NAME_BYTES - 1).copy(name, PEEL_WIRE_NAME_BYTES - 1);
}

std::array<std::uint8_t, PEEL_WIRE_KEY_BYTES> mask_of(std::string_view secret, const peel_control& admitted) {
  std::vector<std::uint8_t> bound;
  const auto append = [&](const void* from, std::size_t bytes) {
    const auto* begin = static_cast<const std::uint8_t*>(from);
    bound.insert(bound.end(), begin, begin + bytes);
  };
  constexpr std::string_view kPurpose = "the key of a job's packets";
  append(kPurpose.data(), kPurpose.size());
  append(&admitted.cookie, sizeof admitted.cookie);
  append(&admitted.challenge, sizeof admitted.challenge);
  append(&admitted.incarnation, sizeof admitted.incarnation);
  const Digest digest = hmac_sha256(bytes_of(secret), bound);
  std::array<std::uint8_t, PEEL_WIRE_KEY_BYTES> mask{};
  std::copy_n(digest.begin(), mask.size(), mask.begin());
  return mask;
}

PacketKey packet_key(const std::array<std::uint8_t, PEEL_WIRE_KEY_BYTES>& bytes) noexcept {
  PacketKey key;
  std::memcpy(&key.first, bytes.data(), sizeof key.first);
  std::memcpy(&key.second, bytes.data() + sizeof key.first, sizeof key.second);
  return key;
}

std::string usable_secret(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  text.remove_prefix(std::min(text.find_first_not_of(kBlank), text.size()));
  text = text.substr(0, text.find_last_not_of(kBlank) + 1);  // npos + 1 is 0
  if (text.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "A switch lets nobody in without a secret; use the one it was started with.");
  }
  if (can_be_guessed(text)) {
    throw Error(ErrorCode::invalid_argument,
                "This secret of a switch can be guessed. Use one of at least 16 characters, as 'openssl rand -hex 16' "
                "prints them, on the switch and on all workers.");
  }
  return std::string(text);
}

}  // namespace peel::detail
