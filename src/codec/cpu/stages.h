// What the stages of the cpu backend share: how work is cut into shares for threads, and the sketch's two stages.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "codec/cpu/kernels.h"
#include "codec/cpu/parallel.h"
#include "codec/engine.h"

namespace peel::detail::cpu {

inline constexpr std::size_t kWorthAThread = 1024;  // words; less than this is done before a thread has started

inline std::size_t cell_bytes(const Geometry& g) {
  return g.cells == CellType::native ? size_of(g.type) : g.cells == CellType::fixed64 ? 8 : 4;
}

inline bool all(const std::vector<char>& flags) {
  return std::all_of(flags.begin(), flags.end(), [](char flag) { return flag != 0; });
}

inline unsigned shares(const Run& run, std::size_t words) {
  return static_cast<unsigned>(std::clamp<std::size_t>(words / kWorthAThread, 1, run.threads));
}

// How many items each of `parts` shares of the words has, and where its first one ranks.
inline std::vector<std::uint64_t> first_ranks(const Run& run, const std::uint64_t* words, unsigned parts) {
  std::vector<std::uint64_t> ranks(parts + 1, 0);
  const std::size_t count = word_count(run.g);
  parallel(run.threads, parts, [&](std::size_t p, unsigned) {
    const Share part = share(count, p, parts);
    ranks[p + 1] = count_words(nullptr, words + part.first, part.end - part.first).bits;
  });
  std::partial_sum(ranks.begin(), ranks.end(), ranks.begin());
  return ranks;
}

// Engine::unpack, Engine::sketch and Engine::peel.
void unpack(const Run& run, const std::byte* payload, std::uint64_t counters, std::byte* values);
bool sketch(const Run& run, const SupportData& own, std::byte* payload);
Peeled peel(const Run& run, const std::uint64_t* words, const std::byte* payload, const PeelOptions& options,
            std::byte* values);

}  // namespace peel::detail::cpu
