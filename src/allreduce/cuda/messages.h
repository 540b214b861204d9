// Messages of shares: those a worker encodes, and those it gets and reads. They are packed messages of lists or bitmaps
// that nobody combines; who sends one says how long it is.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "allreduce/cuda/add_sources.h"
#include "allreduce/cuda/gpu.h"
#include "allreduce/cuda/shares.h"

namespace peel::cuda::detail {

// Where a message lies, exactly as long as it is.
struct MessageSpan {
  std::span<std::byte> index;
  std::span<std::byte> values;
};

// The own messages of some shares, in the index and payload of a slot.
class Outbox {
 public:
  Outbox(GpuSlot& slot, cudaStream_t stream) : slot_(slot), stream_(stream) {}

  struct Share {
    Plan plan;
    Stripes where;
    std::uint64_t room = 0;  // in items
  };
  // Encodes all shares of x, values times factor. The status of share s goes to statuses[s]; with kNoRoom it says how
  // many items there are.
  void encode(Dense x, double factor, std::span<const Share> shares, Status* statuses);
  // Once the statuses are known: where message s lies.
  [[nodiscard]] MessageSpan message(std::size_t s, const Status& status) const;

 private:
  GpuSlot& slot_;
  cudaStream_t stream_;
  std::vector<Message> messages_;
  std::vector<std::size_t> item_bytes_;
};

// Room for the items of a share at the next encoding: as many as are expected and some, or an eighth of its positions
// where nothing is known. Too little costs another encoding.
std::uint64_t roomy(const peel::detail::ChunkHistory& history, const Plan& plan, std::uint64_t expected);

// Grows the room of shares whose statuses say that they had too little; whether there were any.
bool widen(std::span<Outbox::Share> shares, const Status* statuses);

// What such a message takes, from what its sender says of it.
std::size_t index_bytes(const Status& sent);
std::size_t values_bytes(const Plan& plan, const Status& sent);

// Room for messages of others, one after another.
class Inbox {
 public:
  explicit Inbox(GpuSlot& slot) : slot_(slot) {}
  // sent[i]: of a message of plans[i]; afterwards message(i) is where it goes.
  void make_room(std::span<const Plan* const> plans, std::span<const Status* const> sent);
  [[nodiscard]] const MessageSpan& message(std::size_t i) const { return spans_[i]; }

  // Asks `all` for the messages of all workers, plans[w] and sent[w] of worker w. The own one is `own`.
  void gather(std::span<const Plan* const> plans, std::span<const Status* const> sent, unsigned rank,
              const MessageSpan& own, cudaStream_t stream, Collective& all);

 private:
  GpuSlot& slot_;
  std::vector<MessageSpan> spans_;
};

// Reads messages: bitmaps and counts in slot.opened, several at once or one after another.
class Reader {
 public:
  Reader(GpuSlot& slot, cudaStream_t stream) : slot_(slot), stream_(stream) {}
  // Memory for `count` messages of these plans at once, of at most so many items each.
  void make_room(std::span<const Plan* const> plans, std::uint64_t most_items, std::size_t count);
  // What message there is becomes; its place among those at once. The status is written.
  AddedItems read(const Plan& plan, const MessageSpan& message, std::size_t place, Status* status);

 private:
  GpuSlot& slot_;
  cudaStream_t stream_;
  std::size_t pitch_ = 0;
  std::uint64_t most_items_ = 0;
};

}  // namespace peel::cuda::detail
