// The OR of what the workers sent, on the device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace peel::detail {

// into[i] |= parts[w * part_bytes + i] for every worker w but `except`, whose part may be `into` itself. All is aligned
// to 16 bytes, also part_bytes.
// Returns what the launch returned; nothing waits, once prepare_or_words() was called.
cudaError_t or_words(std::byte* into, const std::byte* parts, std::size_t part_bytes, unsigned workers, unsigned except,
                     cudaStream_t stream) noexcept;

// Loads the kernel on the current device. Left to the first launch, loading could wait for kernels that run by then,
// and those may wait for other workers.
cudaError_t prepare_or_words() noexcept;

}  // namespace peel::detail
