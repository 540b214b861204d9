// The verbs: encode, merge, decode, and the two rounds of `packed`. All of them take either view of a gradient, run on
// the backend that `Execution` names, and throw peel::Error; an array they were to write is unchanged then, a message
// they were to fill is not to be used.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "peel/error.h"
#include "peel/gradient.h"
#include "peel/message.h"
#include "peel/plan.h"

namespace peel {

// `reference`: scalar, readable, normative. `cpu`: vectors and threads. Their messages are the same bits.
// `automatic`: what the environment variable PEEL_BACKEND names, else the fastest there is.
enum class Backend : std::uint8_t { automatic, reference, cpu };
std::string_view name(Backend) noexcept;
Backend resolve(Backend backend);           // never `automatic`; throws if it is not in this build
std::vector<Backend> available_backends();  // reference first
std::string_view simd_target();             // what the cpu backend's vectors are on this machine, "" without it

namespace detail {
struct WorkspaceData;
struct SupportData;
}  // namespace detail

// Scratch memory that calls reuse. One per thread that calls; without one, each call allocates its own.
class Workspace {
 public:
  Workspace();
  ~Workspace();
  Workspace(Workspace&&) noexcept;
  Workspace& operator=(Workspace&&) noexcept;
  [[nodiscard]] std::size_t memory_bytes() const noexcept;
  [[nodiscard]] detail::WorkspaceData& data() noexcept { return *data_; }
  [[nodiscard]] const detail::WorkspaceData& data() const noexcept { return *data_; }

 private:
  std::unique_ptr<detail::WorkspaceData> data_;
};

struct Execution {
  Backend backend = Backend::automatic;
  unsigned threads = 1;  // 0: all cores
  Workspace* workspace = nullptr;
};

// One worker's items and their values, kept between the two rounds of `packed` so that the array is read only once.
class Support {
 public:
  Support();
  ~Support();
  Support(Support&&) noexcept;
  Support& operator=(Support&&) noexcept;
  [[nodiscard]] std::uint64_t items() const noexcept;
  [[nodiscard]] std::span<const std::uint64_t> words() const noexcept;  // a bit for each item of the plan, then zeros
  [[nodiscard]] std::span<const std::byte> values();                    // `grain` elements for each item, in order
  [[nodiscard]] std::size_t memory_bytes() const noexcept;
  [[nodiscard]] detail::SupportData& data() noexcept { return *data_; }
  [[nodiscard]] const detail::SupportData& data() const noexcept { return *data_; }

 private:
  std::unique_ptr<detail::SupportData> data_;
};

// One worker's whole message. For `packed` this is the message of its own support: good for files, for peel::merge and
// for a world of one; workers that combine by OR and SUM take the two rounds below.
void encode(const Plan& plan, ConstDense x, Message& message, const Execution& execution = {});
void encode(const Plan& plan, ConstSparse x, Message& message, const Execution& execution = {});

// Round one of `packed`: the index. OR message.index over the workers, then call encode_values.
// A sparse view's values must stay where they are until then.
void encode_index(const Plan& plan, ConstDense x, Support& own, Message& message, const Execution& execution = {});
void encode_index(const Plan& plan, ConstSparse x, Support& own, Message& message, const Execution& execution = {});

// Round two: message.index is the union now; fills message.payload with this worker's share of it. Consumes `own`.
void encode_values(const Plan& plan, Support& own, Message& message, const Execution& execution = {});

// into += from, as any aggregator would: OR of the indexes, SUM of the payloads. Packed messages whose indexes differ
// are joined item by item, which a plain aggregator cannot do. Their numbers of workers add up, too: it throws, and
// leaves `into` as it was, where one is not known or the plan has no room for so many (Plan::most_workers).
void merge(const Plan& plan, Message& into, const Message& from, const Execution& execution = {});

// What a decode reports. lost == 0 certifies losslessness; for integer cells every cell was also found empty after
// peeling, so index and payload belong together.
struct Recovery {
  std::uint64_t items = 0;  // in the union, with the false positives of a Bloom filter
  std::uint64_t recovered = 0;
  std::uint64_t lost = 0;
  std::uint32_t rounds = 0;               // of peeling, in the slowest block; 0 for packed
  std::vector<std::uint64_t> lost_items;  // item numbers, increasing; only with DecodeOptions::list_lost
};

struct DecodeOptions {
  bool estimate = false;  // write the unbiased median estimate of items that do not peel (they still count as lost)
  bool list_lost = false;
  Execution execution = {};
};

// x becomes the sum. Elements of lost items keep their old value in the dense view and are left out of the sparse one,
// unless they are estimated.
Recovery decode(const Plan& plan, const Message& message, Dense x, const DecodeOptions& options = {});
Recovery decode(const Plan& plan, const Message& message, Sparse& x, const DecodeOptions& options = {});

}  // namespace peel
