// Whatever bytes are restored as a state: they are refused, or two workers that restored them still get the right sum.
//
// The first byte says whether the rest gets a right checksum, which would keep the fuzzer out of everything behind it,
// and how the state is used then.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "allreduce/round_table.h"
#include "peel/exchange.h"

namespace {

void mend_checksum(std::vector<std::byte>& bytes) {
  if (bytes.size() < sizeof(std::uint64_t)) return;
  const std::size_t body = bytes.size() - sizeof(std::uint64_t);
  const std::uint64_t checksum = XXH3_64bits(bytes.data(), body);
  std::memcpy(bytes.data() + body, &checksum, sizeof checksum);
}

constexpr unsigned kWorkers = 2;
constexpr std::size_t kElements = 3000;

void use(std::vector<peel::State>& states) {
  std::vector<std::vector<float>> arrays(kWorkers, std::vector<float>(kElements));
  for (unsigned w = 0; w < kWorkers; ++w) {
    for (std::size_t i = w; i < kElements; i += 17) arrays[w][i] = 1.5f;
  }
  std::vector<float> expected(kElements);
  for (std::size_t i = 0; i < kElements; ++i) expected[i] = arrays[0][i] + arrays[1][i];
  peel::testing::RoundTable table(1);
  for (unsigned w = 0; w < kWorkers; ++w) {
    const peel::World world{.rank = w, .size = kWorkers, .link = {}};
    table.join(std::make_unique<peel::Exchange>(states[w], world, arrays[w]));
  }
  table.run();
  for (unsigned w = 0; w < kWorkers; ++w) {
    if (table.error(w) || arrays[w] != expected) __builtin_trap();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::vector<std::byte> bytes(size - 1);
  std::copy_n(reinterpret_cast<const std::byte*>(data) + 1, size - 1, bytes.begin());
  if ((data[0] & 1) != 0) mend_checksum(bytes);
  std::vector<peel::State> states;
  for (unsigned w = 0; w < kWorkers; ++w) {
    states.emplace_back(
        peel::StateOptions{.strategy = static_cast<peel::Strategy>((data[0] >> 1) % 6), .chunk_bytes = 4096});
  }
  const std::vector<std::byte> before = states[0].serialise();
  try {
    states[0].restore(bytes);
  } catch (const peel::Error&) {
    if (states[0].serialise() != before) __builtin_trap();
    return 0;
  }
  if (states[0].serialise() != bytes) __builtin_trap();
  if ((data[0] & 32) != 0) states[1].restore(bytes);  // else on one worker only
  for (int step = 0; step < 3; ++step) use(states);
  return 0;
}
