#include "transport/nccl/staging.h"

#include "transport/nccl/calls.h"

namespace peel::detail {

Staging::Staging(cudaStream_t stream) {
  constexpr std::size_t kBytes = kSlots * 2 * kSlotBytes;
  try {
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, kBytes, cudaHostAllocDefault), "cudaHostAlloc");
    host_ = static_cast<std::byte*>(memory);
    check(cudaMalloc(&memory, kBytes), "cudaMalloc");
    device_ = static_cast<std::byte*>(memory);
    // The ends of slices are sent and combined unwritten; nobody reads the result, but checkers would complain.
    check(cudaMemsetAsync(device_, 0, kBytes, stream), "cudaMemsetAsync");
    for (std::size_t i = 0; i < kSlots; ++i) {
      const std::size_t begin = i * 2 * kSlotBytes;
      slots_[i].host = {host_ + begin, host_ + begin + kSlotBytes};
      slots_[i].device = {device_ + begin, device_ + begin + kSlotBytes};
      check(cudaEventCreateWithFlags(&slots_[i].done, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    }
  } catch (...) {
    release();
    throw;
  }
}

Staging::~Staging() { release(); }

void Staging::release() noexcept {
  for (StagingSlot& slot : slots_) {
    if (slot.done != nullptr) (void)cudaEventDestroy(slot.done);
  }
  if (device_ != nullptr) (void)cudaFree(device_);
  if (host_ != nullptr) (void)cudaFreeHost(host_);
}

}  // namespace peel::detail
