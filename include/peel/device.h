// Where exchanges of arrays in device memory work: kernels on one stream of one GPU. A communicator over NCCL has one
// (Communicator::device), and cuda::make_device (peel/cuda.h) makes one for other drivers of an Exchange.
#pragma once

#include <cstddef>
#include <memory>

#include "peel/report.h"

namespace peel {

class Device;

namespace detail {
class ChunkPlace;

// The memory of one chunk under way, on the device.
class DeviceSlot {
 public:
  virtual ~DeviceSlot() = default;
  [[nodiscard]] virtual std::size_t memory_bytes() const noexcept = 0;
  [[nodiscard]] virtual std::size_t used_bytes() const noexcept = 0;  // of them by the chunk that has borrowed it
  // An exchange ended before its time, and the GPU may still write here: memory goes back behind what is on the stream.
  virtual void abandon() noexcept = 0;
};
}  // namespace detail

class Device {
 public:
  virtual ~Device() = default;
  [[nodiscard]] virtual unsigned workers() const noexcept = 0;  // at most so many take part in an exchange
  // For the engine of exchanges, and for whoever measures the link.
  [[nodiscard]] virtual std::shared_ptr<std::byte> make_memory(std::size_t bytes) = 0;  // of the device, not zeroed
  virtual void clear(void* memory, std::size_t bytes) = 0;                              // on the stream
  // Memory of chunks, lent to one and then to another: what uses it is in order on the stream.
  [[nodiscard]] virtual std::unique_ptr<detail::DeviceSlot> lend_slot() = 0;
  virtual void take_back(std::unique_ptr<detail::DeviceSlot> slot) noexcept = 0;
  // Frees what nobody has borrowed. Where something is on the stream, memory goes back behind it, and is kept for the
  // chunks to come; else the system or the allocator has it then.
  virtual void trim() = 0;
  [[nodiscard]] virtual std::unique_ptr<detail::ChunkPlace> make_place() = 0;  // for one chunk
};

}  // namespace peel
