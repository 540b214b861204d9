// Item messages in device memory (items/item_message.h): those a worker encodes, and those it gets and reads. Index and
// values of a message lie apart, and its header is among the numbers (numbers.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "allreduce/cuda/add_sources.h"
#include "allreduce/cuda/gpu.h"
#include "allreduce/cuda/headers.h"
#include "allreduce/cuda/shares.h"

namespace peel::cuda::detail {

// Where the parts of a message lie, exactly as long as its header says.
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
    std::uint64_t room = 0;     // in items
    std::uint64_t workers = 1;  // whose items are added up in x
  };
  // Encodes all shares of x, values times factor. The status of share s goes to statuses[s]; with kNoRoom it says how
  // many items there are.
  void encode(Dense x, double factor, std::span<const Share> shares, Status* statuses);
  // Once the headers are known: where message s lies.
  [[nodiscard]] MessageSpan message(std::size_t s, const MessageHeader& header) const;

 private:
  GpuSlot& slot_;
  cudaStream_t stream_;
  std::vector<Message> messages_;
  std::vector<std::size_t> item_bytes_;
};

MessageFacts facts_of(const Outbox::Share& share);

// Room for the items of a share at the next encoding: as many as are expected and some, or an eighth of its positions
// where nothing is known. Too little costs another encoding.
std::uint64_t roomy(const peel::detail::ChunkHistory& history, const Plan& plan, std::uint64_t expected);

// Grows the room of shares whose headers say that they had too little; whether there were any.
bool widen(std::span<Outbox::Share> shares, const MessageHeader* headers);

// Room for messages of others, one after another.
class Inbox {
 public:
  explicit Inbox(GpuSlot& slot) : slot_(slot) {}
  // Afterwards message(i) is where the message of sent[i] goes.
  void make_room(std::span<const MessageHeader> sent, std::size_t item_bytes);
  [[nodiscard]] const MessageSpan& message(std::size_t i) const { return spans_[i]; }

  // Requests the messages of all workers, sent[w] of worker w. The own one is `own`.
  void gather(std::span<const MessageHeader> sent, std::size_t item_bytes, unsigned rank, const MessageSpan& own,
              cudaStream_t stream, Collective& all);

 private:
  GpuSlot& slot_;
  std::vector<MessageSpan> spans_;
};

// A run of tiles of a share, as a geometry of its own.
struct Piece {
  Geometry g;
  Stripes where;    // in the array
  ItemRange items;  // in the share
};
// `first` is a multiple of kPieceTiles: so bitmaps of pieces are whole words at every grain.
inline constexpr std::uint64_t kPieceTiles = 16;
Piece piece_of(const Outbox::Share& share, std::uint64_t first, std::uint64_t tiles);
Piece all_of(const Outbox::Share& share);

// Bitmaps are read where they lie; all others take memory.
bool all_bitmaps(std::span<const MessageHeader> headers);

// Reads messages, or the same piece of several: bitmaps and counts in slot.opened, at once or one after another.
class Reader {
 public:
  Reader(GpuSlot& slot, cudaStream_t stream) : slot_(slot), stream_(stream) {}
  // Memory for any `count` of these messages at once, of pieces that are no larger than these.
  void make_room(std::span<const Piece> pieces, std::span<const MessageHeader> headers, std::size_t count);
  // The items of a piece of a message, in one of the places for messages that are read at once. The status is written.
  AddedItems read(const Outbox::Share& share, const Piece& piece, const MessageHeader& header,
                  const MessageSpan& message, std::size_t place, Status* status);

 private:
  GpuSlot& slot_;
  cudaStream_t stream_;
  std::size_t pitch_ = 0;
  std::uint64_t most_items_ = 0;
  bool all_bitmaps_ = false;
};

}  // namespace peel::cuda::detail
