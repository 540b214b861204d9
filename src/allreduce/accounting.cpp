#include "allreduce/accounting.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace peel::detail {

namespace {

// Of one worker's part, which has several pieces only in device memory.
std::uint64_t wire_bytes(const Collective& what, const World& world, std::size_t part) {
  const std::size_t pieces = std::max<std::size_t>(1, what.into.size() / world.size);
  std::uint64_t bytes = 0;
  for (std::size_t p = 0; p < pieces; ++p) bytes += what.send[part * pieces + p].size();
  return std::max<std::uint64_t>(bytes, world.sends_room ? what.likely_bytes : 0);
}

std::uint64_t bytes_sent(const Collective& what, const World& world) {
  const std::uint64_t others = world.size - 1;
  std::uint64_t bytes = 0;
  switch (what.kind) {
    case Collective::Kind::sum:
    case Collective::Kind::bit_or:
      return 2 * others * what.data.size() / world.size;
    case Collective::Kind::all_to_all:
      for (unsigned w = 0; w < world.size; ++w) bytes += w == world.rank ? 0 : wire_bytes(what, world, w);
      return bytes;
    case Collective::Kind::all_gather:
      return others * wire_bytes(what, world, 0);
    case Collective::Kind::settle:
      return 0;
  }
  return 0;
}

void warn_of_error(StateData& state, const Report& report) {
  const StateOptions& options = state.options;
  const std::uint64_t step = state.step + 1;
  const bool lately = state.warned_step != 0 && step < state.warned_step + kStepsBetweenWarnings;
  if (report.estimate_error <= kLargestEstimateError || lately || !options.log) return;
  state.warned_step = step;
  const auto percent = [](double share) { return std::to_string(std::lround(100 * share)) + "%"; };
  options.log("Estimates missed " + percent(report.estimate_error) + " of a gradient, by its norm, and " +
              percent(kLargestEstimateError) + " is the most that trains about as exact sums do: " +
              std::to_string(report.lost) + " of " + std::to_string(report.items) + " items did not peel in " +
              std::to_string(options.estimate_bytes) + " bytes. Give estimates a larger share.");
}

}  // namespace

Collective* Accounting::hand_out(Collective& what, const World& world) {
  what.sequence = sequence_++;
  report.bytes_sent += bytes_sent(what, world);
  return &what;
}

void Accounting::retire(const Choice& choice, std::uint64_t elements, std::uint64_t scratch_bytes) {
  used_[{choice.strategy, choice.plan.grain()}] += elements;
  report.index = choice.plan.index();
  report.workspace_bytes = std::max(report.workspace_bytes, scratch_bytes);
}

void Accounting::finish(StateData& state, const World& world, const SummedArray& array, std::size_t chunks) {
  report.chunks = static_cast<std::uint32_t>(chunks);
  std::uint64_t most = 0;
  for (const auto& [what, elements] : used_) {
    if (elements <= most) continue;
    most = elements;
    report.strategy = what.first;
    report.grain = what.second;
  }
  const double ring = array.scattered() ? 1 : 2;
  report.dense_bytes = static_cast<std::uint64_t>(ring * (world.size - 1) / world.size *
                                                  static_cast<double>(array.elements() * size_of(array.type())));
  report.estimate_error = energy.error();
  warn_of_error(state, report);
}

void Accounting::close(StateData& state) {
  report.total_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  report.wire_s = std::max(0.0, report.total_s - report.encode_s - report.decode_s);
  report.step = ++state.step;
  state.totals.add(report);
  state.last = report;
}

}  // namespace peel::detail
