// Ways to sum the same gradients, measured against each other. All workers run hold_contest() together; in every round
// each contender sums the same arrays once, one contender after another, so that a machine or network that slows down
// slows them all down. What a round took is what its slowest worker took. Every sum of every round is verified, on
// every worker, outside the time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cli/gradients.h"
#include "cli/known_sum.h"
#include "cli/measure.h"
#include "cli/progress.h"
#include "cli/summand.h"
#include "peel/allreduce.h"

namespace peel::cli {

struct ContestOptions {
  View view = View::dense;
  Memory memory = Memory::host;  // that gradients and sums are in; of a device only dense ones
  std::vector<Strategy> strategies;
  unsigned warmup = 3;  // rounds that are not timed: states learn; baselines take part in the first only
  unsigned repeat = 7;  // rounds of which the median counts
  // What every worker sends before each sum, at least. A shaper of the network (tc) lets a burst through after a pause;
  // so much empties its bucket, and no sum is faster than the link.
  std::uint64_t drain_bytes = 0;
  StateOptions state = {};
  Progress* progress = nullptr;  // of the first worker, if anybody watches
  double work = 0;               // by which the whole contest advances it
};

// How a contender did.
struct Standing {
  std::string name;          // as asked: of a strategy, or of the baseline
  bool is_baseline = false;  // the fastest of these is what the others are compared with
  bool is_strategy = false;  // the dense strategy may be both
  double seconds = 0;        // median over the timed rounds
  Report report = {};        // of the last round, on this worker; empty for baselines
  // Means over the workers, medians over the timed rounds:
  double bytes_sent = 0;
  double encode_s = 0;
  double wire_s = 0;
  double decode_s = 0;
  std::uint64_t workspace_bytes = 0;  // the largest of any worker
  // Sums over all timed rounds:
  std::uint64_t repaired = 0;
  std::uint64_t rescaled = 0;
  std::uint64_t sums = 0;  // that were compared with the known one, on each worker
  // Sums over all rounds and workers:
  std::uint64_t wrong = 0;
  std::uint64_t lost = 0;
};

// What the contestants' sums are compared with first.
KnownSum known_sum(const Gradients& gradients, const ContestOptions& options, unsigned threads = 1);

// What the link can do: as given, or measured by all workers together.
LinkFacts agree_on_link(Communicator& communicator, const StateOptions& options, Memory memory = Memory::host);

// A worker's gradient in host memory, in the view of the options.
std::unique_ptr<Summand> host_summand(const Gradients& gradients, std::uint32_t worker, const ContestOptions& options);

// One worker's part. Without baselines the dense strategy is the baseline; a sparse view needs one. All workers return
// the same standings but for the reports. Throws peel::Error or Failure.
std::vector<Standing> hold_contest(Communicator& communicator, Summand& summand, const KnownSum& known,
                                   const std::vector<Baseline>& baselines, const ContestOptions& options);

// The fastest baseline.
const Standing& baseline_of(const std::vector<Standing>& standings);

}  // namespace peel::cli
