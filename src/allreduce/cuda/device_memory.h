// Device memory of exchanges: it grows and is kept from step to step, on a stream and without waiting for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "peel/cuda.h"

namespace peel::cuda::detail {

void require(cudaError_t code, const char* call);  // throws peel::Error (transport)

// Makes a device the current one, and the earlier one again in the end.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int earlier_ = -1;  // -1: it was that one
};

// Where memory comes from, and goes back to. Shared by all that holds some. What is at rest goes back on a stream of
// its own, which nothing holds up.
//
// Without an allocator it has a pool of its own. The device's default pool hands memory that one stream has freed to
// another by making that one wait; with workers that share a GPU one would wait for a stream whose collective waits for
// it.
class MemorySource {
 public:
  MemorySource(cudaStream_t stream, Allocator allocator);
  ~MemorySource();
  MemorySource(const MemorySource&) = delete;
  MemorySource& operator=(const MemorySource&) = delete;

  [[nodiscard]] void* take(std::size_t bytes);
  // At rest: nothing on any stream uses it. Else what is on the exchange's stream may, and comes first.
  void give(void* memory, bool at_rest) noexcept;
  // What was given back at rest goes to the system. It waits for its own stream alone.
  void trim() noexcept;
  [[nodiscard]] int device() const noexcept { return device_; }

 private:
  cudaStream_t stream_;
  Allocator allocator_;
  cudaStream_t own_ = nullptr;
  cudaMemPool_t pool_ = nullptr;
  int device_ = 0;
};

// An array that is made longer as needed; what it held is lost then.
class DeviceArray {
 public:
  explicit DeviceArray(std::shared_ptr<MemorySource> source) : source_(std::move(source)) {}
  ~DeviceArray() { release(/*at_rest=*/true); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  // Of at least so many bytes, aligned to 256 bytes.
  std::byte* ensure(std::size_t bytes);
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  // What the largest ensure() since begin_use() would have allocated, had there been nothing.
  [[nodiscard]] std::size_t used() const noexcept { return used_; }
  void begin_use() noexcept { used_ = 0; }
  void release(bool at_rest) noexcept;

 private:
  std::shared_ptr<MemorySource> source_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t used_ = 0;
};

}  // namespace peel::cuda::detail
