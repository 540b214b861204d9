// What a place of memory can do for one chunk: read its items, encode them, combine them with those of others, write
// the sums, and report numbers. There is one for host memory and one for a device, and strategies know neither.
//
// A host does everything at once. A device puts kernels on its stream, and its numbers are known once a collective
// behind them is complete. So a run that wants a number calls fence() first, and reads the number in its next stage:
// "after a fence" below.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "allreduce/estimate.h"
#include "allreduce/vitals.h"
#include "peel/communicator.h"
#include "peel/grain.h"
#include "peel/report.h"

namespace peel::detail {

struct Chunk;
class StrategyRun;

using Requests = std::vector<Collective*>;

// Adds the time until it is destroyed to a field of the report, and names it in profilers.
class Timing {
 public:
  explicit Timing(const char* name);
  virtual ~Timing();
  Timing(const Timing&) = delete;
  Timing& operator=(const Timing&) = delete;
};

// What a decoded message held.
struct Decoded {
  std::uint64_t items = 0;
  std::uint64_t lost = 0;
  std::uint32_t rounds = 0;
};

// What split and gather added up.
struct ItemCounts {
  std::uint64_t items = 0;  // of the union
  std::uint64_t added = 0;  // of all workers
};

class ChunkPlace {
 public:
  virtual ~ChunkPlace() = default;

  // Lets a run go on: all that it requested is complete.
  virtual void step(StrategyRun& run, Chunk& chunk, Requests& requests) = 0;
  // What was requested last was not begun and never will be.
  virtual void withdraw() noexcept = 0;
  // Requests that the host gets the numbers of all that was done so far. A host has them, and requests nothing.
  virtual void fence(Chunk& chunk, Requests& requests) = 0;
  // Only for stages that end with a fence, or with a collective that fetches numbers: the time of a device is known
  // then, and not before.
  [[nodiscard]] virtual std::unique_ptr<Timing> timing(Chunk& chunk, double Report::*seconds, const char* name) = 0;

  // ---- the array
  virtual void average(Chunk& chunk) = 0;  // in place
  // Items of the sum, at the grain of the history.
  virtual void count_items(Chunk& chunk) = 0;
  [[nodiscard]] virtual std::uint64_t counted_items(const Chunk& chunk) = 0;  // after a fence
  virtual void count_grains(Chunk& chunk) = 0;
  [[nodiscard]] virtual GrainChoice best_grain(Chunk& chunk) = 0;  // after a fence

  // ---- messages that are combined: packed and sketch, with the plan of the chunk's choice
  virtual void begin_sketch(Chunk& chunk) = 0;  // of a sketch, the first of all
  // The summary is what all workers must know of each other, in words that combine by OR (vitals.h).
  virtual void request_summary(Chunk& chunk, Requests& requests) = 0;
  // Requests the OR of the own index, with the summary behind it.
  virtual void request_index(Chunk& chunk, Requests& requests) = 0;
  // The same for a sketch, and the sum of its cells in the same round.
  virtual void request_sketch(Chunk& chunk, Requests& requests) = 0;
  // Once one of these is complete: the summary first, then whether some worker had a value that did not fit.
  [[nodiscard]] virtual Vitals summary(Chunk& chunk) = 0;
  [[nodiscard]] virtual bool overflowed(const Chunk& chunk) const = 0;

  // The own values of a packed union. `values` returns nothing where there was too little room for them; then
  // encode_values is called again.
  virtual void encode_values(Chunk& chunk) = 0;
  [[nodiscard]] virtual std::optional<std::span<std::byte>> values(Chunk& chunk) = 0;  // after a fence

  // The sum. `decoded` returns nothing where there was too little room; then decode is called again.
  virtual void decode(Chunk& chunk) = 0;
  [[nodiscard]] virtual std::optional<Decoded> decoded(Chunk& chunk) = 0;  // after a fence

  // What a sum with estimates lacks, which goes to the residual where there is one.
  virtual void measure_estimates(Chunk& chunk, double trusted) = 0;
  [[nodiscard]] virtual ChunkEnergy energy(const Chunk& chunk) = 0;  // after a fence

  // Cells of the own values of items that did not peel, in an order that all workers share; and their sums back.
  [[nodiscard]] virtual std::span<std::byte> take_lost(Chunk& chunk) = 0;
  virtual void put_lost(Chunk& chunk) = 0;

  // ---- items that move: split, where every worker owns a share, and gather, where everybody owns everything
  virtual void encode_items(Chunk& chunk) = 0;
  // Where others must know how much comes: requests that they are told.
  virtual void request_lengths(Chunk& chunk, Requests& requests) = 0;
  // Whether all had room for their items, once the lengths are known. Else they are encoded again where they had not,
  // and lengths are requested once more.
  [[nodiscard]] virtual bool fits(Chunk& chunk, Requests& requests) = 0;
  virtual void request_items(Chunk& chunk, Requests& requests) = 0;  // to their owners
  virtual void add_items(Chunk& chunk) = 0;
  // The sums of the own share, to everybody; and everybody's into the array.
  virtual void encode_sums(Chunk& chunk) = 0;
  virtual void request_sum_lengths(Chunk& chunk, Requests& requests) = 0;
  [[nodiscard]] virtual bool sums_fit(Chunk& chunk, Requests& requests) = 0;
  virtual void request_sums(Chunk& chunk, Requests& requests) = 0;
  virtual void write_sums(Chunk& chunk) = 0;
  [[nodiscard]] virtual ItemCounts item_counts(Chunk& chunk) = 0;  // after a fence
};

std::unique_ptr<ChunkPlace> make_host_place();

}  // namespace peel::detail
