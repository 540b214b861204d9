// What an exchange reports: bytes, rounds, strategies, times and how exact it was.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <utility>

#include "allreduce/choice.h"
#include "allreduce/estimate.h"
#include "allreduce/history.h"
#include "allreduce/summed_array.h"
#include "peel/exchange.h"

namespace peel::detail {

class Accounting {
 public:
  explicit Accounting(unsigned workers) {
    report.workers = workers;
    report.exactness = Exactness::rounded_once;
  }

  Report report;  // strategies add to both
  StepEnergy energy;

  // A collective that is handed out gets its number, and what it sends counts.
  Collective* hand_out(Collective& what, const World& world);
  // A chunk is done, which worked with the others in so much memory.
  void retire(const Choice& choice, std::uint64_t elements, std::uint64_t scratch_bytes);
  // All chunks are done. Warns where estimates miss too much, now and then.
  void finish(StateData& state, const World& world, const SummedArray& array, std::size_t chunks);
  // The last thing: the report becomes part of the state's history.
  void close(StateData& state);

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::uint32_t sequence_ = 0;
  std::map<std::pair<Strategy, std::uint32_t>, std::uint64_t> used_;  // elements by strategy and grain
};

}  // namespace peel::detail
