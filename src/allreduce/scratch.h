// The memory of one chunk under way, and how an exchange borrows it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "items/item_message.h"
#include "peel/codec.h"
#include "peel/communicator.h"
#include "peel/device.h"
#include "peel/message.h"
#include "peel/scratch.h"

namespace peel::detail {

// Empties what an earlier step asked for, all but its kind, its type and the memory of what was received.
void forget(Collective& what);

// What lies in it is of one chunk: the next one finds room, never contents.
struct ChunkScratch {
  Support support;
  Message message;
  Workspace workspace;
  Buffer<std::uint64_t> list;               // coded positions
  Buffer<std::uint64_t> words;              // the union
  Buffer<std::byte> values;                 // its sums
  std::vector<PositionBuffers> shares;      // by worker: of the items dealt to it, or received
  std::vector<Buffer<std::byte>> messages;  // of items, by worker
  Buffer<std::byte> own_message;            // of items, for all workers
  std::vector<std::uint64_t> items;         // of a sparse chunk, counted from its first
  std::array<Collective, 2> collectives;
  std::unique_ptr<DeviceSlot> device;  // of arrays in device memory, which use none of the buffers above

  void prepare(unsigned workers);                  // for the next chunk
  [[nodiscard]] std::size_t memory_bytes() const;  // all that is kept, whoever needed it

  // What this chunk works in, where others may have left more room. Buffers are measured between steps, so one that
  // a step fills and empties again does not count.
  void note_use();
  [[nodiscard]] std::size_t most_used() const noexcept { return most_used_; }

 private:
  std::size_t most_used_ = 0;
};

// The scratch of one chunk for as long as this lives. It goes back to its pool, and what is of a device to the device.
class LentScratch {
 public:
  LentScratch(std::shared_ptr<ScratchPool> pool, std::shared_ptr<Device> device, unsigned workers);
  ~LentScratch();
  LentScratch(const LentScratch&) = delete;
  LentScratch& operator=(const LentScratch&) = delete;

  [[nodiscard]] ChunkScratch& operator*() const noexcept { return *scratch_; }
  [[nodiscard]] ChunkScratch* operator->() const noexcept { return scratch_.get(); }

 private:
  std::shared_ptr<ScratchPool> pool_;
  std::shared_ptr<Device> device_;  // null: of an array in host memory
  std::unique_ptr<ChunkScratch> scratch_;
};

}  // namespace peel::detail
