// Whatever bytes arrive, parsing, decoding and merging them ends in a result or a peel::Error, the same on every
// backend: no crash, no hang, no wild memory.
//
// The first byte says whether the rest is taken as it is, or gets a right magic, version, lengths and checksum first;
// else the checksum would keep the fuzzer out of everything behind it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "peel/peel.h"

namespace {

constexpr std::uint64_t kMostElements = 1u << 18;  // bounds memory and time, not what is checked

void repair_header(std::vector<std::byte>& bytes) {
  constexpr std::size_t kMessageAt = peel::kHeaderBytes - 8;
  constexpr std::size_t kMessageHeader = 40;
  if (bytes.size() < kMessageAt + kMessageHeader) return;
  const auto put = [&](std::size_t at, auto value) { std::memcpy(bytes.data() + at, &value, sizeof value); };
  const auto get = [&](std::size_t at) {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
  };
  const auto stated = std::to_integer<std::uint32_t>(bytes[4]);
  const std::uint32_t version = stated == 1 || stated == 2 ? stated : 3;
  std::memcpy(bytes.data(), "PEEL", 4);
  put(4, version);
  if (version == 3) {
    const std::uint64_t length = bytes.size() - kMessageAt;
    put(8, length);
    put(16, std::uint64_t{0});
    std::memcpy(bytes.data() + kMessageAt, "IM\1", 3);
    put(kMessageAt + 8, length);
  } else {
    const std::uint64_t body =
        bytes.size() - kMessageAt - (version == 1 ? 0 : 8);  // version 1 has no number of workers
    const std::uint64_t words = std::min(get(8), body / 8);
    put(8, words);
    put(16, body - words * 8);
  }
  const std::uint64_t head = XXH3_64bits(bytes.data(), 24);
  const std::uint64_t sum = XXH3_64bits_withSeed(bytes.data() + 32, bytes.size() - 32, head);
  std::memcpy(bytes.data() + 24, &sum, sizeof sum);
}

// What a backend makes of a message: what it reports, or why it refuses.
std::string outcome(const peel::Plan& plan, const peel::Message& message, peel::Backend backend) {
  const peel::DecodeOptions options{.estimate = true, .list_lost = true, .execution = {.backend = backend}};
  std::vector<std::uint64_t> memory(plan.elements() * size_of(plan.type()) / 8 + 1);
  try {
    const peel::Recovery r = decode(plan, message, peel::Dense(memory.data(), plan.elements(), plan.type()), options);
    peel::Sparse sparse;
    (void)decode(plan, message, sparse, options);
    std::string said = std::to_string(r.items) + " items, " + std::to_string(r.rounds) + " rounds, lost";
    for (const std::uint64_t item : r.lost_items) said += " " + std::to_string(item);
    peel::Message twice = message;
    try {
      merge(plan, twice, message, {.backend = backend});
    } catch (const peel::Error& error) {
      return said + "; " + error.what();
    }
    // What was merged is counted, has room, and is written and read as it is.
    if (twice.workers != 2 * message.workers.value() || *twice.workers > plan.most_workers()) __builtin_trap();
    if (peel::parse(serialise(plan, twice)).message.workers != twice.workers) __builtin_trap();
    (void)decode(plan, twice, sparse, options);
    return said;
  } catch (const peel::Error& error) {
    return error.what();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::vector<std::byte> bytes(size - 1);
  std::copy_n(reinterpret_cast<const std::byte*>(data) + 1, size - 1, bytes.begin());
  if ((data[0] & 1) != 0) repair_header(bytes);
  try {
    const peel::Parsed parsed = peel::parse(bytes);
    // Nothing is allocated by what the message states before the reader can ask how much that is.
    if (parsed.plan.dense_bytes() > peel::plausible_dense_bytes(parsed.message)) return 0;
    if (parsed.plan.elements() > kMostElements) return 0;
    const std::string expected = outcome(parsed.plan, parsed.message, peel::Backend::reference);
    for (const peel::Backend backend : peel::available_backends()) {
      if (backend == peel::Backend::reference) continue;
      if (outcome(parsed.plan, parsed.message, backend) != expected) __builtin_trap();
    }
  } catch (const peel::Error&) {
  }
  return 0;
}
