// The codec on a GPU, in the library peelreduce_cuda: the verbs of peel/codec.h on device memory.
//
//   const Plan plan = Plan::make({.elements = n, .expected_items = n / 100, .codec = Codec::sketch, ...});
//   const cuda::Room room = cuda::room_for(plan);               // what a message and the work on it take
//   ... the caller allocates message, workspace and status on the device, once ...
//   cuda::encode(plan, x, message, launch);                     // on launch.stream
//   ... OR message.index, SUM message.payload over the workers, on the same stream ...
//   cuda::decode(plan, message, x, {}, launch);
//   ... copy *launch.status to the host when the step is over, and cuda::check(plan, status) ...
//
// A verb puts work on a stream and returns. It allocates nothing, waits for nothing and can be captured into a CUDA
// graph. Wrong arguments throw peel::Error at once; what only the data can tell (overflow, loss, damage) is told in the
// status. Messages are the same bits as those of the other backends wherever cells are integers, and either decodes
// the other's. Sums in float32 cells depend on the order of additions, and take what is below 2^-126 for zero. All
// pointers are device memory of the current device, which must be that of the stream; several streams and devices may
// work at once, each with memory of its own. A verb waits for all that is ahead on its stream; a kernel there that was
// itself launched to overlap the one before it (programmatic dependent launch) must have waited for that one.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "peel/codec.h"
#include "peel/device.h"
#include "peel/gradient.h"
#include "peel/grain.h"
#include "peel/plan.h"

namespace peel::cuda {

// What a verb has to report, in device memory. A verb writes all of it, whatever was there.
struct Status {
  // encode_index, encode of a sketch: own ones; else those of the index, false positives of a Bloom filter included
  std::uint64_t items = 0;
  std::uint64_t recovered = 0;    // decode
  std::uint64_t lost = 0;         // decode: items that did not peel
  std::uint64_t index_words = 0;  // encode, encode_index: the length of the index
  std::uint32_t rounds = 0;       // decode: of peeling, in the slowest block
  std::uint32_t flags = 0;
};

inline constexpr std::uint32_t kOverflow = 1;   // on some worker a value did not fit the scale
inline constexpr std::uint32_t kNotFinite = 2;  // encode: NaN or infinity where fixed cells cannot hold it
inline constexpr std::uint32_t kCorrupt = 4;    // index and payload do not belong together, or are damaged
// There were more items than the caller had made room for. A sketch has room for as many as it has cells, and for
// Launch::items: a union with more than both is refused however it is decoded, and with fewer loses what does not peel.
inline constexpr std::uint32_t kNoRoom = 8;
inline constexpr std::uint32_t kLacksItems = 16;  // encode_values: the combined index lacks an item of this worker
inline constexpr std::uint32_t kBadItems = 32;    // sparse view: item numbers do not increase, or are past the end

// Throws what the other backends would have thrown. Loss is no error.
void check(const Plan& plan, const Status& status);

// Memory that a message and the verbs take when the union has at most `items` items. Without a number: for as many as
// the plan's payload was made for.
struct Room {
  std::uint64_t items = 0;
  std::uint64_t index_words = 0;
  std::uint64_t payload_bytes = 0;
  std::uint64_t support_words = 0;
  std::size_t workspace_bytes = 0;  // enough for every verb
};
Room room_for(const Plan& plan);
Room room_for(const Plan& plan, std::uint64_t items);

// A message. Lengths are the room there is; for a list that is decoded, index_words is its exact length or more.
// Both arrays are aligned to 16 bytes.
struct Message {
  std::uint64_t* index = nullptr;
  std::uint64_t index_words = 0;
  std::byte* payload = nullptr;
  std::uint64_t payload_bytes = 0;
  std::optional<std::uint64_t> workers = {};  // that it holds, for merge: the memory does not say (peel/message.h)
};

// The sparse view on the device. Items increase; `count` of them, `grain` values each.
struct ConstSparse {
  const std::uint64_t* items = nullptr;
  std::uint64_t count = 0;
  const void* values = nullptr;
  ElementType type = ElementType::float32;
};
struct Sparse {
  std::uint64_t* items = nullptr;
  void* values = nullptr;
  std::uint64_t room = 0;  // in items
  ElementType type = ElementType::float32;
};

inline constexpr std::uint64_t kPlannedItems = ~std::uint64_t{0};  // as many as room_for(plan) makes room for

// Where a verb works, and with what. The workspace is aligned to 256 bytes, as cudaMalloc gives it.
struct Launch {
  cudaStream_t stream = nullptr;
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
  Status* status = nullptr;
  std::uint64_t items = kPlannedItems;  // Room::items, where room_for() was asked for a number of items
};

// One worker's whole message. For `packed` this is the message of its own support.
void encode(const Plan& plan, ConstDense x, const Message& message, const Launch& launch);
void encode(const Plan& plan, const ConstSparse& x, const Message& message, const Launch& launch);

// Round one of `packed`: message.index, and `support` (Room::support_words words), the own items for round two.
void encode_index(const Plan& plan, ConstDense x, std::uint64_t* support, const Message& message, const Launch& launch);
void encode_index(const Plan& plan, const ConstSparse& x, std::uint64_t* support, const Message& message,
                  const Launch& launch);

// Round two: message.index is the union now; fills the payload. x is as it was in round one. The payload has
// status.items * grain cells; the rest of its room is zero, so that it may be summed without asking how many.
void encode_values(const Plan& plan, ConstDense x, const std::uint64_t* support, const Message& message,
                   const Launch& launch);
void encode_values(const Plan& plan, const ConstSparse& x, const std::uint64_t* support, const Message& message,
                   const Launch& launch);

// into += from: OR of the indexes, SUM of the payloads, of messages whose payloads lie alike: sketches, and packed ones
// over one common index (bitmap or Bloom filter). Packed ones over different indexes are kCorrupt, where a status is
// given, and `into` is not to be used. Both must say how many workers they hold, and into.workers becomes the sum; more
// than plan.most_workers() are refused before anything is launched.
void merge(const Plan& plan, Message& into, const Message& from, const Launch& launch);

struct DecodeOptions {
  bool estimate = false;                // write the median estimate of items that do not peel
  std::uint64_t* lost_items = nullptr;  // gets item numbers of lost items, in no order; status.lost says how many
  std::uint64_t lost_room = 0;          // those past it are counted and not listed
};

// x becomes the sum; elements of lost items keep their old value. With kOverflow, kCorrupt or kNoRoom in the status x
// is not to be used.
void decode(const Plan& plan, const Message& message, Dense x, const DecodeOptions& options, const Launch& launch);
// x has status.recovered items; with `estimate`, status.lost more.
void decode(const Plan& plan, const Message& message, const Sparse& x, const DecodeOptions& options,
            const Launch& launch);

// best_grain in two steps: counts on the device, and the choice from the counts once they are on the host.
inline constexpr std::size_t kGrainCounts = 2047;
void count_grains(ConstDense x, const PlanOptions& options, std::uint64_t* counts, cudaStream_t stream);
GrainChoice best_grain(std::span<const std::uint64_t> counts, const PlanOptions& options);

// ---- all-reduces of arrays in device memory

// Where exchanges get device memory from. What is released may still be used by what was put on the stream before.
struct Allocator {
  std::function<void*(std::size_t bytes)> allocate;  // aligned to 256 bytes; throws if there is none
  std::function<void(void* memory)> release;
};

// For World::device: exchanges of `workers` workers whose arrays are in the memory of the current device, with kernels
// on `stream`, which stays the caller's and must outlive every exchange on it and
// the device. Without an allocator it has a pool of its own. Communicators over NCCL have one already
// (Communicator::device), and peel::allreduce uses it.
std::shared_ptr<Device> make_device(cudaStream_t stream, unsigned workers, Allocator allocator = {});

}  // namespace peel::cuda
