// A device as exchanges see it: a stream, memory on both sides of the bus, and the courses that work there.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "allreduce/course.h"
#include "allreduce/cuda/device_memory.h"

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
  GpuSlot(const Device& device, const std::shared_ptr<MemorySource>& source);

  [[nodiscard]] std::size_t memory_bytes() const noexcept override;
  [[nodiscard]] bool is_of(const Device& device) const noexcept override { return &device == device_; }
  void abandon() noexcept override;

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
  std::vector<DeviceArray*> all();
  const Device* device_;
};

// Page-locked memory, for what comes from the device and goes there. Allocating it may wait for kernels, and those of
// workers that share the GPU may wait for us: so a few blocks are made in the beginning and lent in turn.
class HostBlocks {
 public:
  explicit HostBlocks(std::size_t bytes_each);
  ~HostBlocks();
  HostBlocks(const HostBlocks&) = delete;
  HostBlocks& operator=(const HostBlocks&) = delete;

  [[nodiscard]] std::byte* borrow();
  void give_back(std::byte* block);
  [[nodiscard]] std::size_t bytes_each() const noexcept { return bytes_each_; }

 private:
  void make();

  std::mutex mutex_;
  std::size_t bytes_each_;
  std::vector<std::byte*> all_;
  std::vector<std::byte*> free_;
};

class Gpu final : public Device {
 public:
  Gpu(cudaStream_t stream, unsigned workers, Allocator allocator);

  [[nodiscard]] std::shared_ptr<std::byte> make_memory(std::size_t bytes) override;
  [[nodiscard]] std::unique_ptr<peel::detail::DeviceSlot> make_slot() override;
  [[nodiscard]] std::unique_ptr<peel::detail::Course> make_course(Strategy strategy) override;

  [[nodiscard]] cudaStream_t stream() const noexcept { return stream_; }
  [[nodiscard]] int ordinal() const noexcept { return source_->device(); }
  [[nodiscard]] HostBlocks& host() noexcept { return host_; }

 private:
  cudaStream_t stream_;
  std::shared_ptr<MemorySource> source_;
  HostBlocks host_;
};

}  // namespace peel::cuda::detail
