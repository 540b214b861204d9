// What a chunk on a device has ORed: the index of its message and, behind it, the vitals of the worker, as
// tagged_index.h has it on the host.
#pragma once

#include "allreduce/cuda/gpu.h"
#include "allreduce/cuda/numbers.h"
#include "allreduce/vitals.h"

namespace peel::cuda::detail {

class GpuIndex {
 public:
  // Memory for an index of so many words, and vitals; the index is at its front.
  std::uint64_t* make_room(GpuSlot& slot, std::uint64_t words);
  [[nodiscard]] std::uint64_t* vitals() const noexcept { return index_ + words_; }

  // Writes the vitals: items as status says; magnitudes of x, where anybody asks for them.
  void write(const Numbers& on_device, ConstDense x, bool magnitudes, cudaStream_t stream) const;
  [[nodiscard]] std::span<std::byte> bytes() const;
  // Fetches what was combined, with `with`, which combines it.
  void fetch(Collective& with, const Numbers& on_host) const;
  [[nodiscard]] peel::detail::Vitals take(ElementType type, const Numbers& on_host) const;
  [[nodiscard]] bool overflowed(const Numbers& on_host) const;

 private:
  std::uint64_t* index_ = nullptr;
  std::uint64_t words_ = 0;
};

}  // namespace peel::cuda::detail
