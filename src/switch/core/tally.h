// What a switch counts.
#pragma once

#include <array>
#include <cstdint>

#include "switch/core/jobs.h"

namespace peel::aggregator {

struct Tally {
  std::uint64_t received = 0;
  std::uint64_t combined = 0;
  std::uint64_t completed = 0;
  std::uint64_t repeated = 0;
  std::uint64_t sent = 0;
  std::array<std::uint64_t, PEEL_DROPS> dropped{};

  Tally& operator+=(const Tally& other) noexcept {
    received += other.received;
    combined += other.combined;
    completed += other.completed;
    repeated += other.repeated;
    sent += other.sent;
    for (std::size_t i = 0; i < dropped.size(); ++i) dropped[i] += other.dropped[i];
    return *this;
  }
};

// Of one job.
struct JobTally {
  std::uint64_t received = 0;
  std::uint64_t completed = 0;
  std::uint64_t dropped = 0;
  std::array<std::uint32_t, PEEL_WIRE_MAX_WORKERS> of_worker{};  // of those received; wraps around
};

// Whoever counts.
class Census {
 public:
  virtual ~Census() = default;
  [[nodiscard]] virtual Tally tally() const = 0;
  [[nodiscard]] virtual JobTally tally_of(const Job& job) const = 0;
  [[nodiscard]] virtual std::uint32_t busy_slots(const Job& job) const = 0;  // with a round that is not complete
};

}  // namespace peel::aggregator
