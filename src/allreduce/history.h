// What a state remembers of each chunk of its array: integers that all workers derive from the same sums, so all hold
// the same.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "peel/report.h"
#include "peel/state.h"

namespace peel::detail {

struct ChunkHistory {
  std::uint64_t steps = 0;      // in which something was learned; 0: nothing is known
  std::uint64_t items = 0;      // of the last union, at this grain and phase
  std::uint64_t own_items = 0;  // of one worker, on average or a little above
  std::uint32_t grain = 1;
  std::uint32_t phase = 0;
  std::uint32_t variation_permille = 0;  // by how much unions changed from step to step, a maximum that fades
  std::uint32_t has_magnitude = 0;
  std::int32_t magnitude = 0;    // values of the last step were below 2^magnitude on every worker
  std::uint32_t steady = 0;      // steps since the grain was looked for
  std::uint64_t items_then = 0;  // items when the grain was looked for

  void learn(std::uint64_t union_items, std::uint64_t own);
  void learn_magnitude(const std::optional<std::int32_t>& seen);
  [[nodiscard]] std::uint32_t headroom_permille() const;  // for a plan of the next step
};

inline constexpr std::size_t kChunksInFlight = 3;

// What an array is to a state: with anything else it is another one.
struct ArrayIdentity {
  std::uint64_t elements = 0;
  ElementType type = ElementType::float32;
  std::uint32_t workers = 0;
  std::size_t chunks = 0;
};

struct StateData {
  StateOptions options;
  // The array this was learned on; another one starts anew.
  std::uint64_t elements = 0;
  ElementType type = ElementType::float32;
  std::uint32_t workers = 0;
  std::uint64_t step = 0;
  std::vector<ChunkHistory> chunks;
  Totals totals;
  Report last;
  std::uint32_t unasked = 0;       // steps that are dense without an opening; of what all workers agreed on:
  std::uint64_t agreed_terms = 0;  // its fingerprint
  std::uint64_t warned_step = 0;   // in which it was last logged that estimates miss too much; 0: never

  // A state is of one array with one cut: another one starts anew. It may also have been restored from one with another
  // grain, or with one that was found.
  void remember(const ArrayIdentity& array);
  void forget(std::size_t chunks_of_array);

  // Whether this step needs no opening. All workers count these steps alike, from one at which they agreed.
  [[nodiscard]] bool take_unasked_step(std::uint64_t terms);
  // Called at the end of an exchange that opened and was all dense: the next steps need not ask.
  void trust(std::uint64_t terms);

  // One at a time uses a state, from whichever thread. False: somebody does already.
  [[nodiscard]] bool claim() noexcept { return !busy_.exchange(true, std::memory_order_acquire); }
  void release() noexcept { busy_.store(false, std::memory_order_release); }

 private:
  [[nodiscard]] bool is_of(const ArrayIdentity& array) const;

  std::atomic<bool> busy_ = false;
};

}  // namespace peel::detail
