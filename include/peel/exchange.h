// One all-reduce without I/O: it says which collectives to perform, and never communicates. Whoever drives it performs
// them: a loop over MPI, threads of a test, a dispatcher behind torch futures, a fault injector.
//
//   const auto pool = std::make_shared<ScratchPool>();  // once, for all exchanges
//   Exchange exchange(state, {.rank = 0, .size = 4, .link = facts, .scratch = pool}, x);
//   while (Collective* ask = exchange.next()) {   // blocking driver
//     perform(*ask);
//     exchange.complete(*ask);
//   }
//
// A driver that overlaps calls next() until it returns null, and complete() as collectives end, in any order. All
// workers get the same collectives in the same order.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "peel/communicator.h"
#include "peel/device.h"
#include "peel/gradient.h"
#include "peel/report.h"
#include "peel/state.h"

namespace peel {

// Types of numbers that a transport can sum.
class SumTypes {
 public:
  constexpr SumTypes() = default;  // none
  static constexpr SumTypes all() noexcept { return SumTypes(0xFF); }
  static constexpr SumTypes integers() noexcept { return SumTypes(0xF0); }

  constexpr void add(ElementType type) noexcept { bits_ |= 1U << static_cast<unsigned>(type); }
  [[nodiscard]] constexpr bool has(ElementType type) const noexcept {
    return (bits_ >> static_cast<unsigned>(type) & 1) != 0;
  }
  bool operator==(const SumTypes&) const = default;

 private:
  constexpr explicit SumTypes(unsigned bits) : bits_(bits) {}
  unsigned bits_ = 0;
};

struct World {
  unsigned rank = 0;
  unsigned size = 1;
  LinkFacts link = {};
  bool moves_buffers = true;  // all_to_all and all_gather exist: split and gather are possible
  // Where the type of an array is missing it cannot be summed dense, and packed uses fixed cells, whose integers are
  // then needed.
  SumTypes sums = SumTypes::all();
  bool sends_room = false;  // parts of all_to_all and all_gather take at least their likely_bytes; reports count them
  // The same on every worker, and another one whenever workers connect again after a failure: what they agreed on
  // before that does not hold any more (StateOptions::unasked_steps).
  std::uint64_t session = 0;
  // The number of this exchange among those of its session, where whoever drives exchanges counts them: workers that
  // are at different places of their program are told so, even if their arrays are alike.
  std::uint64_t number = 0;
  std::shared_ptr<Device> device = nullptr;  // arrays may be in the memory of this one
  // What its exchanges work in, and keep for the next ones. Null: each exchange allocates its own and frees it.
  std::shared_ptr<ScratchPool> scratch = nullptr;
};

enum class Outcome : std::uint8_t {
  everywhere,  // all-reduce: every worker ends with the sum
  scattered,   // reduce-scatter: worker w ends with the sum of share w, in place; the rest of its array is unchanged
};

// Share w of an array cut into `workers` contiguous shares: ceil(elements / workers) each, the last ones shorter.
struct Share {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};
Share share_of(std::uint64_t elements, unsigned workers, unsigned worker) noexcept;

class Exchange {
 public:
  // x is summed in place and must stay where it is until the exchange is finished or destroyed. Errors in the
  // arguments are not thrown here but told to all workers in the opening, so that all raise them; but for the steps
  // that have none (StateOptions::unasked_steps).
  Exchange(State& state, const World& world, Dense x, Outcome outcome = Outcome::everywhere);
  // The same, with what estimates (StateOptions::estimate_bytes) leave out. `residual` is as long as x, of the same
  // float type and in the same memory, and lies apart from it. Where an item was lost it becomes this worker's own
  // value less the average that all workers got, and zero everywhere else: the residuals of all workers add up to what
  // the sum missed. Add it to the next step's x, unless it points against that (docs/design.md). For that, estimates
  // are made so much smaller that less is missed than there was; without a residual they are unbiased, and may be all
  // noise.
  Exchange(State& state, const World& world, Dense x, Dense residual);
  // Sparse: `sum` is filled, x is only read; x must not be part of `sum`.
  Exchange(State& state, const World& world, ConstSparse x, Sparse& sum);
  // Takes part only to have all workers raise that this one cannot, and why: a sentence that goes on "Worker 2 cannot
  // take part: ". For workers that failed before they had anything to sum. Only where state.asks().
  Exchange(State& state, const World& world, std::string refusal);
  ~Exchange();

  // The next collective to begin, or null: either one under way must complete first, or all is done (finished()).
  // Encodes and decodes. Throws peel::Error.
  Collective* next();
  void complete(Collective& done);

  [[nodiscard]] bool finished() const noexcept;
  [[nodiscard]] bool moving() const noexcept;  // data is under way: after an error x may be partly summed
  [[nodiscard]] const Report& report() const noexcept;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace peel
