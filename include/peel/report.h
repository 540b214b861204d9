// What one all-reduce did, and what a state has seen so far.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "peel/types.h"

namespace peel {

// How workers get the sum. `packed` and `sketch` need only SUM and OR; `split` and `gather` move buffers.
enum class Strategy : std::uint8_t { automatic = 0, dense = 1, packed = 2, sketch = 3, split = 4, gather = 5 };
std::string_view name(Strategy) noexcept;

// What kind of sum it is. A report never just says lossless.
enum class Exactness : std::uint8_t {
  as_dense,      // added in the element type, in some order: as exact as a dense sum
  rounded_once,  // added in rank order in a wider type and rounded once: the same bits in every run, but for signs of
                 // zeros
  fixed_point,   // no farther than `error_bound` from the true sum, before rounding to the type
  estimated,     // some items were estimated, because that was asked for
};
std::string_view name(Exactness) noexcept;

// Report::estimate_error above which exchanges log that a share is too small: with what is missed fed back, it takes
// seven steps and more until half of a gradient has arrived (docs/design.md).
inline constexpr double kLargestEstimateError = 0.95;

struct Report {
  std::uint64_t step = 0;  // of the state, from 1
  unsigned workers = 1;
  Strategy strategy = Strategy::dense;  // of most of the array; chunks may differ
  std::uint32_t grain = 1;              // the same
  Index index = Index::bitmap;          // the same, for packed and sketch
  std::uint32_t chunks = 1;
  Exactness exactness = Exactness::as_dense;  // of the least exact chunk
  double error_bound = 0;                     // fixed_point: of any element
  std::int32_t scale = 0;                     // fixed_point: the smallest of all chunks

  std::uint64_t bytes_sent = 0;      // by this worker, where sums and ORs cost what a ring does
  std::uint64_t dense_bytes = 0;     // what a dense ring would have it send
  std::uint64_t items = 0;           // in the union
  std::uint64_t union_elements = 0;  // items * grain, summed over chunks
  std::uint32_t rounds = 0;          // of communication one after another, beside the opening
  std::uint32_t peel_rounds = 0;
  std::uint64_t lost = 0;        // items; 0 unless estimates were asked for
  double estimate_error = 0;     // what estimates missed, as a share of the norm of the sum; itself an estimate
  std::uint64_t repaired = 0;    // items that did not peel and were exchanged again
  std::uint32_t rescaled = 0;    // chunks that were redone with another scale
  std::uint32_t not_finite = 0;  // chunks that were redone because of NaN or infinity
  bool reset = false;            // the workers had chosen differently and took the common default
  // The most memory beside the array that its chunks worked in at a time, measured between their steps. What others
  // left in the pool (peel/scratch.h) does not count.
  std::uint64_t workspace_bytes = 0;
  double encode_s = 0;
  double wire_s = 0;  // time in which nothing could be done but wait for others
  double decode_s = 0;
  double total_s = 0;

  [[nodiscard]] std::string to_json() const;
};

// Sums over all steps of a state.
struct Totals {
  std::uint64_t steps = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t dense_bytes = 0;
  std::uint64_t items = 0;
  std::uint64_t repaired = 0;
  std::uint64_t rescaled = 0;
  std::uint64_t not_finite = 0;
  std::uint64_t resets = 0;
  double encode_s = 0;
  double wire_s = 0;
  double decode_s = 0;
  double total_s = 0;

  void add(const Report& report);
  [[nodiscard]] std::string to_json() const;
};

// Both in the text format that Prometheus scrapes, labelled with the name of the state.
std::string to_prometheus(const Report& last, const Totals& totals, std::string_view label);

}  // namespace peel
