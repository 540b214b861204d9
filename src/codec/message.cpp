// Messages, and their form in files and sockets. Layout: docs/format.md.
#include "peel/message.h"

#include <algorithm>
#include <cstring>
#include <optional>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "codec/arguments.h"
#include "codec/message_header.h"
#include "peel/error.h"

namespace peel {

namespace {

constexpr char kMagic[4] = {'P', 'E', 'E', 'L'};
constexpr std::uint32_t kVersion = 3;
constexpr std::size_t kChecksumAt = 24;
constexpr std::size_t kPlanAt = 32;
constexpr std::size_t kMessageAt = kPlanAt + Plan::kDescriptorBytes;

// Versions 1 and 2 have no header of the message behind the plan: two lengths stand before the checksum, and of
// version 2 the number of workers behind the plan.
constexpr std::uint32_t kVersionWithWorkers = 2;
constexpr std::uint32_t kVersionWithoutWorkers = 1;
static_assert(kMessageAt + sizeof(std::uint64_t) == kHeaderBytes);

template <typename T>
T get(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

[[noreturn]] void corrupt(const char* sentence) { throw Error(ErrorCode::corrupt_message, sentence); }

// It covers every byte but its own.
std::uint64_t checksum(std::span<const std::byte> bytes) {
  const std::uint64_t head = XXH3_64bits(bytes.data(), kChecksumAt);
  return XXH3_64bits_withSeed(bytes.data() + kPlanAt, bytes.size() - kPlanAt, head);
}

detail::MessageHeader::Values values_of(const Plan& plan) {
  using Values = detail::MessageHeader::Values;
  return plan.codec() == Codec::sketch ? Values::sketch : Values::plain;
}

std::size_t item_bytes(const Plan& plan) { return plan.cell_bytes() * plan.grain(); }

// What a serialised message says of its parts, whatever its version.
struct Parts {
  std::uint64_t index_words = 0;  // without the flag word
  std::uint64_t flags = 0;
  std::uint64_t payload_bytes = 0;
  std::optional<std::uint64_t> workers;
  const std::byte* index = nullptr;
  const std::byte* payload = nullptr;
};

Parts old_parts(std::span<const std::byte> bytes) {
  const auto words = get<std::uint64_t>(bytes.data() + 8);
  if (words == 0) corrupt("The index has another length than its plan says; the message is damaged.");
  Parts parts;
  parts.index_words = words - 1;
  parts.payload_bytes = get<std::uint64_t>(bytes.data() + 16);
  parts.index = bytes.data() + kMessageAt;
  if (get<std::uint32_t>(bytes.data() + 4) == kVersionWithWorkers) {
    parts.workers = get<std::uint64_t>(parts.index);
    parts.index += sizeof(std::uint64_t);
  }
  parts.flags = get<std::uint64_t>(parts.index + parts.index_words * 8);
  parts.payload = parts.index + words * 8;
  return parts;
}

Parts parts_of(const Plan& plan, std::span<const std::byte> message) {
  using Header = detail::MessageHeader;
  const auto header = get<Header>(message.data());
  if (header.magic != Header::kMagic) corrupt("There is no item message behind the plan; the message is damaged.");
  if (header.version != Header::kVersion || header.values > Header::Values::sketch ||
      (header.flags & ~Header::kOverflow) != 0) {
    throw Error(ErrorCode::unsupported, "This message was written by another version of the format; use that release.");
  }
  const bool sketch = plan.codec() == Codec::sketch;
  const std::uint64_t room = message.size() - sizeof(Header);
  if (header.length != message.size() || header.index != detail::header_index(plan.index()) ||
      header.values != values_of(plan) || header.zero != 0 || header.count != 0 || (sketch && header.items != 0) ||
      header.items > plan.items()) {
    corrupt("The header of the items does not belong to the plan; the message is damaged.");
  }
  Parts parts;
  parts.flags = header.flags;
  parts.workers = header.workers;
  parts.payload_bytes = sketch ? plan.payload_bytes() : header.items * item_bytes(plan);
  if (parts.payload_bytes > room || (room - parts.payload_bytes) % 8 != 0) {
    corrupt("Index and payload have other lengths than the plan says; the message is damaged.");
  }
  parts.index_words = (room - parts.payload_bytes) / 8;
  parts.index = message.data() + sizeof(Header);
  parts.payload = parts.index + parts.index_words * 8;
  return parts;
}

}  // namespace

Message::Message(const Plan& plan) : workers(0) {
  index.resize(plan.index() == Index::list ? 2 : plan.index_words());
  index.fill_zero();
  if (plan.codec() == Codec::sketch) payload.resize(plan.payload_bytes());
  payload.fill_zero();
}

std::vector<std::byte> serialise(const Plan& plan, const Message& message) {
  if (!message.workers) {
    detail::refuse("The message does not say how many workers it holds, and a file must; set Message::workers.");
  }
  detail::check_workers(plan, message.workers);
  using Header = detail::MessageHeader;
  if ((message.flags() & ~std::uint64_t{Header::kOverflow}) != 0) {
    corrupt("The message has flags that no encoder sets; it is damaged, make it again.");
  }
  const std::uint64_t index_bytes = message.index.size() == 0 ? 0 : (message.index.size() - 1) * 8;
  Header header;
  header.index = detail::header_index(plan.index());
  header.values = values_of(plan);
  header.flags = static_cast<std::uint8_t>(message.flags());
  header.length = sizeof(Header) + index_bytes + message.payload.size();
  header.items = plan.codec() == Codec::sketch ? 0 : message.payload.size() / item_bytes(plan);
  header.workers = *message.workers;

  std::vector<std::byte> out(kMessageAt + header.length);
  std::memcpy(out.data(), kMagic, sizeof kMagic);
  std::memcpy(out.data() + 4, &kVersion, sizeof kVersion);
  std::memcpy(out.data() + 8, &header.length, sizeof header.length);
  const std::vector<std::byte> descriptor = plan.serialise();
  std::memcpy(out.data() + kPlanAt, descriptor.data(), descriptor.size());
  std::byte* to = out.data() + kMessageAt;
  std::memcpy(to, &header, sizeof header);
  to += sizeof header;
  if (index_bytes != 0) std::memcpy(to, message.index.data(), index_bytes);
  if (message.payload.size() != 0) std::memcpy(to + index_bytes, message.payload.data(), message.payload.size());
  const std::uint64_t sum = checksum(out);
  std::memcpy(out.data() + kChecksumAt, &sum, sizeof sum);
  return out;
}

std::uint64_t serialised_bytes(std::span<const std::byte> header) {
  if (header.size() < kHeaderBytes) corrupt("The message is shorter than its header; it was truncated.");
  if (std::memcmp(header.data(), kMagic, sizeof kMagic) != 0) corrupt("This is not a PeelReduce message.");
  const auto version = get<std::uint32_t>(header.data() + 4);
  const auto first = get<std::uint64_t>(header.data() + 8);
  const auto second = get<std::uint64_t>(header.data() + 16);
  constexpr std::uint64_t kMost = std::uint64_t{1} << 56;
  if (first > kMost || second > kMost) corrupt("The message states an impossible length; it is damaged.");
  switch (version) {
    case kVersion:
      if (first < sizeof(detail::MessageHeader) || second != 0) {
        corrupt("The message states an impossible length; it is damaged.");
      }
      return kMessageAt + first;
    case kVersionWithWorkers:
      return kMessageAt + sizeof(std::uint64_t) + first * 8 + second;
    case kVersionWithoutWorkers:
      return kMessageAt + first * 8 + second;
    default:
      throw Error(ErrorCode::unsupported,
                  "This message was written by another version of the format; use that release.");
  }
}

Parsed parse(std::span<const std::byte> bytes) {
  const std::uint64_t length = serialised_bytes(bytes);
  if (bytes.size() < length) corrupt("The message ends before its stated length; it was truncated.");
  if (bytes.size() > length) corrupt("There are bytes after the end of the message; pass one message at a time.");
  if (checksum(bytes) != get<std::uint64_t>(bytes.data() + kChecksumAt)) {
    corrupt("The checksum does not match; the message is damaged, have it sent again.");
  }
  Parsed parsed{Plan::parse(bytes.subspan(kPlanAt, Plan::kDescriptorBytes)), {}};
  const Plan& plan = parsed.plan;
  const bool current = get<std::uint32_t>(bytes.data() + 4) == kVersion;
  const Parts parts = current ? parts_of(plan, bytes.subspan(kMessageAt)) : old_parts(bytes);
  if (plan.index() == Index::list ? parts.index_words == 0 : parts.index_words + 1 != plan.index_words()) {
    corrupt("The index has another length than its plan says; the message is damaged.");
  }
  if (plan.codec() == Codec::sketch ? parts.payload_bytes != plan.payload_bytes()
                                    : parts.payload_bytes % item_bytes(plan) != 0) {
    corrupt("The payload has another length than its plan says; the message is damaged.");
  }
  if (parts.workers && *parts.workers > plan.most_workers()) {
    corrupt("The message states more workers than its plan has room for; it is damaged.");
  }
  Message& message = parsed.message;
  message.workers = parts.workers;
  message.index.resize(parts.index_words + 1);
  std::memcpy(message.index.data(), parts.index, parts.index_words * 8);
  message.index[parts.index_words] = parts.flags;
  message.payload.resize(parts.payload_bytes);
  if (parts.payload_bytes != 0) std::memcpy(message.payload.data(), parts.payload, parts.payload_bytes);
  return parsed;
}

std::uint64_t plausible_dense_bytes(const Message& message) noexcept {
  constexpr std::uint64_t kAlways = std::uint64_t{64} << 20;
  constexpr std::uint64_t kTimes = 1000;
  return std::max(kAlways, message.bytes() * kTimes);
}

}  // namespace peel
