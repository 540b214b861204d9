// The OR of what the workers sent, on the device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace peel::detail {

// into = own | the parts of all workers but `except`, each `bytes` long; part w begins at w * stride of `parts`.
// `into` may be `own`, or the part of `except`; else it overlaps none. All is whole 64-bit words, aligned to them.
struct OrParts {
  std::byte* into = nullptr;
  const std::byte* own = nullptr;
  const std::byte* parts = nullptr;
  std::size_t bytes = 0;
  std::size_t stride = 0;
  unsigned workers = 1;
  unsigned except = 0;
};

// Returns what the launch returned; nothing waits, once prepare_or_words() was called.
cudaError_t or_words(const OrParts& what, cudaStream_t stream) noexcept;

// Loads the kernel on the current device. Left to the first launch, loading could wait for kernels that run by then,
// and those may wait for other workers.
cudaError_t prepare_or_words() noexcept;

}  // namespace peel::detail
