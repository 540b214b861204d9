// One configuration of a codec, measured: the gradients of all workers are encoded, merged and decoded, every step is
// timed, and the result is verified.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "cli/gradients.h"
#include "cli/progress.h"
#include "cli/verify.h"
#include "peel/codec.h"
#include "peel/plan.h"

namespace peel::cli {

enum class View : std::uint8_t { dense, sparse };
std::string_view name(View) noexcept;
inline constexpr std::initializer_list<View> kViews = {View::dense, View::sparse};

// Where the codec runs: on the processor, with one of the library's backends, or on a GPU.
enum class Device : std::uint8_t { host, cuda };

struct MeasureOptions {
  Codec codec = Codec::packed;
  CellType cells = CellType::automatic;
  Index index = Index::automatic;
  View view = View::dense;
  std::optional<Grain> grain = {};  // none: the best for the union's support
  double payload_ratio = 0;         // of a sketch's payload to the dense size; 0: as large as it needs to be
  bool estimate = false;            // what does not peel
  Device device = Device::host;
  Backend backend = Backend::automatic;  // of the host
  bool cold_l2 = false;                  // of the GPU: its cache is flushed before everything that is timed
  unsigned threads = 1;                  // of the host
  unsigned repeat = 3;
  std::uint64_t seed = 0x5EED;   // of the plan's hashes
  Progress* progress = nullptr;  // if anybody watches; a GPU is done too soon to tell
  double work = 0;               // by which the whole measurement advances it
};

std::string_view name(const MeasureOptions& options) noexcept;  // of the backend, or "cuda"

// The GPU that ran it. Clocks are the highest it may take.
struct Gpu {
  std::string name;
  unsigned sm_clock_mhz = 0;
  unsigned memory_clock_mhz = 0;
};

// Times are medians of `repeat` after some that are not counted. A GPU's are its own, from one event on the stream to
// another, with all work on the stream before the first: a training step launches ahead as well.
struct Measurement {
  Plan plan;
  MeasureOptions options;         // with the backend that ran
  std::uint64_t items = 0;        // of the union
  double grain_s = 0;             // choosing the grain
  double encode_s = 0;            // one worker's work, both rounds for packed; mean over the workers
  double merge_s = 0;             // adding one message to another
  double decode_s = 0;            // of the merged message
  double memcpy_s = 0;            // copying one worker's array (or its items' values) there, with as many threads
  std::uint64_t index_bytes = 0;  // of the merged message
  std::uint64_t payload_bytes = 0;
  std::uint64_t worker_bytes = 0;  // one worker's own message; mean over the workers
  Recovery recovery = {};
  Verdict verdict = {};
  std::optional<Gpu> gpu = {};

  [[nodiscard]] std::uint64_t message_bytes() const noexcept { return index_bytes + payload_bytes; }
};

// What S_min, the paper's bound, allows for the union of these gradients.
std::uint64_t lower_bound_bytes(const Gradients& gradients);

// Throws peel::Error or Failure. Holds two arrays of one worker at a time, however many workers there are.
Measurement measure(const Gradients& gradients, const MeasureOptions& options);

}  // namespace peel::cli
