// Memory on both sides of the bus that pieces of arrays pass through: allocated once, used in turn.
//
//   a slot      host side (pinned)                      device side
//               near: what this worker gives            near: the same
//               far:  what came from the others         far:  the same
//
// Pageable memory would make the copies wait for the stream, without a time-out. And an array that was pinned or copied
// as a whole would need allocations while kernels run, for which CUDA may wait, while those kernels wait for us.
#pragma once

#include <array>
#include <cstddef>

#include "peel/nccl.h"

namespace peel::detail {

// Of each of a slot's four sides. A piece is large enough for NCCL to reach its bandwidth, and small enough that the
// host copies one while the GPU works on others. All that happens to pieces is on one stream. Streams of their own for
// the two directions gained nothing on an H200 (a SUM in a world of one, NCCL 2.28.3, two runs of each: 21 and 27 us
// for 64 bytes instead of 13 and 16, 13.3 and 15.7 ms for 64 MiB instead of 11.7 and 12.4; four workers: no
// difference).
inline constexpr std::size_t kSlotBytes = std::size_t{4} << 20;
inline constexpr std::size_t kSlots = 4;

struct StagingSlot {
  struct Side {
    std::byte* near = nullptr;
    std::byte* far = nullptr;
  };
  Side host;
  Side device;
  cudaEvent_t done = nullptr;  // the result is where it goes: on the host, or in the caller's memory on the device
};

// The current device's. Destroying it frees the memory, for which the GPU must be done with it.
class Staging {
 public:
  explicit Staging(cudaStream_t stream);  // on which the memory is ready
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  [[nodiscard]] const StagingSlot& operator[](std::size_t i) const noexcept { return slots_[i]; }

 private:
  void release() noexcept;

  std::byte* host_ = nullptr;
  std::byte* device_ = nullptr;
  std::array<StagingSlot, kSlots> slots_{};
};

}  // namespace peel::detail
