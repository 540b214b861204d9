// What an all-reduce remembers from step to step: how many items there were, which grain fits them, how large values
// are. One state for each bucket (an array that is reduced again and again); the caller owns it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "peel/codec.h"
#include "peel/communicator.h"
#include "peel/report.h"

namespace peel {

struct StateOptions {
  Strategy strategy = Strategy::automatic;
  std::uint32_t grain = 0;         // 0: found from the sums. A sparse gradient needs it: it is the length of its rows
  std::uint64_t elements = 0;      // sparse gradients only: of the whole array
  bool average = false;            // every value is multiplied by 1/workers first, in its own type; floats only
  Index index = Index::automatic;  // packed and sketch
  CellType cells = CellType::automatic;  // sketch: fixed32 (fixed64 for 8-byte elements); packed: native
  // Estimate mode: sketches of this payload in all, divided among chunks by their last unions, and no repair; what does
  // not peel is estimated. Lossy: use Exchange or allreduce with a residual. 0: lossless.
  std::uint64_t estimate_bytes = 0;
  // After an all-reduce that was dense, so many more are dense without asking first whether all workers mean the same:
  // a round saved where nothing else is. Only for arrays that something else keeps alike: if lengths begin to differ in
  // such a step, or some workers restore their state and others do not, what happens is up to the transport (a
  // time-out, its own error, a wrong sum), as with its own all-reduce. After an error no worker goes on with such a
  // state, or all do. 0: always ask.
  std::uint32_t unasked_steps = 0;
  std::uint64_t seed = 0x5EED;
  std::optional<LinkFacts> link = {};  // none: measured once per communicator. On all workers or on none
  std::uint64_t chunk_bytes = 0;       // 0: chosen. Tests make it small
  // How long this worker waits in a collective while nothing moves: not how long a sum may take, and time that it
  // spends elsewhere itself does not count. So it has nothing to do with the length of arrays or the speed of links,
  // but with the longest time that any worker stays away between two sums. If one evaluates for 70 s while the others
  // already sum, they need more than 70 s; make it twice as long as the longest such pause. It costs nothing while all
  // goes well: a worker that is gone is noticed so much later, that is all. The same on every worker.
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
  Execution execution = {};                        // its workspace is not used
  std::function<void(std::string_view)> log = {};  // gets a sentence when something out of the ordinary happens
  std::string name = "gradient";                   // in logs, errors and metrics
};

namespace detail {
struct StateData;
}

class State {
 public:
  explicit State(StateOptions options = {});
  ~State();
  State(State&&) noexcept;
  State& operator=(State&&) noexcept;

  [[nodiscard]] const StateOptions& options() const noexcept;
  [[nodiscard]] const Totals& totals() const noexcept;
  [[nodiscard]] const Report& last() const noexcept;

  // Whether the next exchange opens by asking all workers whether they mean the same, as all but `unasked_steps` do.
  [[nodiscard]] bool asks() const noexcept;
  // Elements of the last union, in whole items, as all workers know it; nothing before the first sum.
  [[nodiscard]] std::optional<std::uint64_t> union_elements() const noexcept;
  // Another StateOptions::estimate_bytes from the next exchange on, on all workers alike. Throws peel::Error while an
  // exchange is under way.
  void set_estimate_bytes(std::uint64_t bytes);

  // For checkpoints: what was learned, not the options. A state that is restored on some workers only makes them choose
  // differently once, which the next exchange notices and mends. Both throw peel::Error while an exchange is under way
  // (with an AsyncReducer, wait for its future first: it works in a thread of its own); restore() also on damaged
  // bytes.
  [[nodiscard]] std::vector<std::byte> serialise() const;
  void restore(std::span<const std::byte> bytes);

  [[nodiscard]] detail::StateData& data() noexcept { return *data_; }

 private:
  std::unique_ptr<detail::StateData> data_;
};

}  // namespace peel
