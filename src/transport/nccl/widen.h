// 16-bit integers as 32-bit ones and back, on the device: NCCL has none of 16 bits.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace peel::detail {

// Of `count` numbers. narrow_to_int16() drops what a sum carried into the upper half. Both return what the launch
// returned; nothing waits, once prepare_widen() was called.
cudaError_t widen_int16(const std::byte* from16, std::byte* to32, std::size_t count, cudaStream_t stream) noexcept;
cudaError_t narrow_to_int16(const std::byte* from32, std::byte* to16, std::size_t count, cudaStream_t stream) noexcept;

// Loads the kernels on the current device, as prepare_or_words() does its own.
cudaError_t prepare_widen() noexcept;

}  // namespace peel::detail
