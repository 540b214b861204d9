// A device as exchanges see it: a stream, memory on both sides of the bus, and the places of chunks there.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "allreduce/cuda/device_memory.h"
#include "allreduce/place.h"

namespace peel::cuda::detail {

// When something began and ended on a stream.
class Interval {
 public:
  Interval();
  ~Interval();
  Interval(const Interval&) = delete;
  Interval& operator=(const Interval&) = delete;

  void begin(cudaStream_t stream);
  void end(cudaStream_t stream) noexcept;
  [[nodiscard]] double seconds() const;  // once it has ended on the stream

 private:
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

// What a chunk under way holds on the device. Arrays are named for what lies in them.
class GpuSlot final : public peel::detail::DeviceSlot {
 public:
  explicit GpuSlot(const std::shared_ptr<MemorySource>& source);

  [[nodiscard]] std::size_t memory_bytes() const noexcept override;
  [[nodiscard]] std::size_t used_bytes() const noexcept override;
  void begin_use() noexcept;  // by another chunk
  void abandon() noexcept override { release(/*at_rest=*/false); }
  void release(bool at_rest) noexcept;

  DeviceArray workspace;  // of verbs
  DeviceArray words;      // statuses, counts, tables: what is fetched or sent to the device as numbers
  DeviceArray index;      // of the own messages
  DeviceArray payload;
  DeviceArray support;                               // own items between the rounds of packed
  DeviceArray arrived_index;                         // of the others' messages
  DeviceArray arrived_values;                        // their payloads
  DeviceArray opened;                                // messages as bitmaps with counts
  DeviceArray scratch;                               // of an OR, of lists, of sorting
  std::vector<std::unique_ptr<Interval>> intervals;  // as many as were ever measured between two collectives

 private:
  static constexpr DeviceArray GpuSlot::*kArrays[] = {
      &GpuSlot::workspace,     &GpuSlot::words,          &GpuSlot::index,  &GpuSlot::payload, &GpuSlot::support,
      &GpuSlot::arrived_index, &GpuSlot::arrived_values, &GpuSlot::opened, &GpuSlot::scratch};
};

// Page-locked memory, for what comes from the device and goes there. Allocating it may wait for kernels, and those of
// workers that share the GPU may wait for us: so a few blocks are made in the beginning and lent in turn.
class HostBlocks {
 public:
  explicit HostBlocks(std::size_t bytes_each);
  HostBlocks(const HostBlocks&) = delete;
  HostBlocks& operator=(const HostBlocks&) = delete;

  [[nodiscard]] std::byte* borrow();
  void give_back(std::byte* block);
  // Freeing waits for the GPU: only where it is idle. What was not given back may still be written to, and stays.
  void free() noexcept;

 private:
  void make();

  std::mutex mutex_;
  std::size_t bytes_each_;
  std::vector<std::byte*> free_;
};

class Gpu final : public Device {
 public:
  Gpu(cudaStream_t stream, unsigned workers, Allocator allocator);
  ~Gpu() override;

  [[nodiscard]] unsigned workers() const noexcept override { return workers_; }
  [[nodiscard]] std::shared_ptr<std::byte> make_memory(std::size_t bytes) override;
  void clear(void* memory, std::size_t bytes) override;
  [[nodiscard]] std::unique_ptr<peel::detail::DeviceSlot> lend_slot() override;
  void take_back(std::unique_ptr<peel::detail::DeviceSlot> slot) noexcept override;
  void trim() override;
  [[nodiscard]] std::unique_ptr<peel::detail::ChunkPlace> make_place() override;

  [[nodiscard]] cudaStream_t stream() const noexcept { return stream_; }
  [[nodiscard]] int ordinal() const noexcept { return source_->device(); }
  [[nodiscard]] HostBlocks& host() noexcept { return host_; }

 private:
  // Frees the slots that nobody has borrowed. True: nothing was on the stream, so their memory is at rest.
  bool free_idle() noexcept;

  cudaStream_t stream_;
  unsigned workers_;
  std::shared_ptr<MemorySource> source_;
  HostBlocks host_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<GpuSlot>> idle_;
};

}  // namespace peel::cuda::detail
