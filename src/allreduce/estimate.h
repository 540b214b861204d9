// Estimates of a fixed size (StateOptions::estimate_bytes): how chunks share the bytes, how far an estimate is trusted,
// and how much of a step estimates missed. docs/design.md says why.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "allreduce/history.h"
#include "allreduce/layout.h"
#include "peel/gradient.h"
#include "peel/plan.h"

namespace peel::detail {

// What each chunk gets of `bytes`: by the last unions, or by their lengths where a union is not known.
std::vector<std::uint64_t> share_estimate(std::uint64_t bytes, const Layout& layout,
                                          const std::vector<ChunkHistory>& chunks);

// What estimates are multiplied by where the caller feeds back what they miss: 2 / (2 + load), a float. The load is the
// number of items for each cell of a subtable. Of integers that all workers know, so all have the same.
double estimate_load(const Plan& plan, std::uint64_t items);
double trusted_share(double load);

// Sums of squares of a chunk that was decoded, before estimates were multiplied.
struct ChunkEnergy {
  double cells = 0;   // as they came, a third of all: each subtable holds everything once
  double values = 0;  // of all decoded values
  double lost = 0;    // of those that are estimates
};

// Of the whole step; the error is the root of their ratio.
struct StepEnergy {
  double missed = 0;
  double whole = 0;

  void add(const ChunkEnergy& chunk, double load, double trusted);
  [[nodiscard]] double error() const;
};

// An error above kLargestEstimateError is logged at most once in so many steps of a state.
inline constexpr std::uint64_t kStepsBetweenWarnings = 100;

// ChunkEnergy::cells of a payload in host memory.
double cell_energy(const Plan& plan, std::span<const std::byte> payload);

// For a dense chunk x in host memory whose items `lost` were estimated: the energies of its values. With a residual,
// which holds x as it was before decoding, estimates are multiplied by `trusted`; the residual becomes own - x * share
// where an item was lost, and zero elsewhere.
void measure_values(const Plan& plan, std::span<const std::uint64_t> lost, ConstDense x, ChunkEnergy& energy);
void feed_back(const Plan& plan, std::span<const std::uint64_t> lost, double trusted, double share, Dense x,
               Dense residual);
// The same energies where values lie by item.
void measure_values(const Plan& plan, std::span<const std::uint64_t> lost, const Sparse& x, ChunkEnergy& energy);

}  // namespace peel::detail
