// Messages, and their form in files and sockets. Layout: docs/format.md.
#include "peel/message.h"

#include <algorithm>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "codec/arguments.h"
#include "peel/error.h"

namespace peel {

namespace {

constexpr char kMagic[4] = {'P', 'E', 'E', 'L'};
constexpr std::uint32_t kVersion = 2;
constexpr std::uint32_t kVersionWithoutWorkers = 1;
constexpr std::size_t kChecksumAt = 24;
constexpr std::size_t kPlanAt = 32;
constexpr std::size_t kWorkersAt = kPlanAt + Plan::kDescriptorBytes;
static_assert(kWorkersAt + sizeof(std::uint64_t) == kHeaderBytes);

template <typename T>
T get(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

[[noreturn]] void corrupt(const char* sentence) { throw Error(ErrorCode::corrupt_message, sentence); }

// Where the index begins: version 1 has no number of workers.
std::size_t index_at(std::uint32_t version) { return version == kVersionWithoutWorkers ? kWorkersAt : kHeaderBytes; }

// Of every byte but the checksum's own.
std::uint64_t checksum(std::span<const std::byte> bytes) {
  const std::uint64_t head = XXH3_64bits(bytes.data(), kChecksumAt);
  return XXH3_64bits_withSeed(bytes.data() + kPlanAt, bytes.size() - kPlanAt, head);
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
  std::vector<std::byte> out(kHeaderBytes + message.bytes());
  const std::uint64_t words = message.index.size();
  const std::uint64_t payload = message.payload.size();
  std::memcpy(out.data(), kMagic, sizeof kMagic);
  std::memcpy(out.data() + 4, &kVersion, sizeof kVersion);
  std::memcpy(out.data() + 8, &words, sizeof words);
  std::memcpy(out.data() + 16, &payload, sizeof payload);
  const std::vector<std::byte> descriptor = plan.serialise();
  std::memcpy(out.data() + kPlanAt, descriptor.data(), descriptor.size());
  std::memcpy(out.data() + kWorkersAt, &*message.workers, sizeof *message.workers);
  if (words != 0) std::memcpy(out.data() + kHeaderBytes, message.index.data(), words * 8);
  if (payload != 0) std::memcpy(out.data() + kHeaderBytes + words * 8, message.payload.data(), payload);
  const std::uint64_t sum = checksum(out);
  std::memcpy(out.data() + kChecksumAt, &sum, sizeof sum);
  return out;
}

std::uint64_t serialised_bytes(std::span<const std::byte> header) {
  if (header.size() < kHeaderBytes) corrupt("The message is shorter than its header; it was truncated.");
  if (std::memcmp(header.data(), kMagic, sizeof kMagic) != 0) corrupt("This is not a PeelReduce message.");
  const auto version = get<std::uint32_t>(header.data() + 4);
  if (version != kVersion && version != kVersionWithoutWorkers) {
    throw Error(ErrorCode::unsupported, "This message was written by another version of the format; use that release.");
  }
  const auto words = get<std::uint64_t>(header.data() + 8);
  const auto payload = get<std::uint64_t>(header.data() + 16);
  constexpr std::uint64_t kMost = std::uint64_t{1} << 56;
  if (words > kMost || payload > kMost) corrupt("The message states an impossible length; it is damaged.");
  return index_at(version) + words * 8 + payload;
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
  const auto version = get<std::uint32_t>(bytes.data() + 4);
  const auto words = get<std::uint64_t>(bytes.data() + 8);
  const auto payload = get<std::uint64_t>(bytes.data() + 16);
  if (plan.index() == Index::list ? words < 2 : words != plan.index_words()) {
    corrupt("The index has another length than its plan says; the message is damaged.");
  }
  if (plan.codec() == Codec::sketch ? payload != plan.payload_bytes()
                                    : payload % (plan.cell_bytes() * plan.grain()) != 0) {
    corrupt("The payload has another length than its plan says; the message is damaged.");
  }
  const std::byte* body = bytes.data() + index_at(version);
  if (version != kVersionWithoutWorkers) {
    parsed.message.workers = get<std::uint64_t>(bytes.data() + kWorkersAt);
    if (*parsed.message.workers > plan.most_workers()) {
      corrupt("The message states more workers than its plan has room for; it is damaged.");
    }
  }
  parsed.message.index.resize(words);
  parsed.message.payload.resize(payload);
  std::memcpy(parsed.message.index.data(), body, words * 8);
  if (payload != 0) std::memcpy(parsed.message.payload.data(), body + words * 8, payload);
  return parsed;
}

std::uint64_t plausible_dense_bytes(const Message& message) noexcept {
  constexpr std::uint64_t kAlways = std::uint64_t{64} << 20;
  constexpr std::uint64_t kTimes = 1000;
  return std::max(kAlways, message.bytes() * kTimes);
}

}  // namespace peel
