// The product that allreduce/average.h makes on the host, bit for bit.
#pragma once

#include "codec/cuda/conversion.cuh"

namespace peel::cuda::detail {

// In the type itself; of 16 bits the product is a float first.
template <ElementType kType>
__device__ std::uint64_t product(std::uint64_t bits, double factor) {
  if constexpr (kType == ElementType::float64) {
    return narrow_bits(__dmul_rn(widen_bits(bits, kType), factor), kType);
  } else {
    const auto value = static_cast<float>(widen_bits(bits, kType));
    return narrow_bits(__fmul_rn(value, static_cast<float>(factor)), kType);
  }
}

}  // namespace peel::cuda::detail
