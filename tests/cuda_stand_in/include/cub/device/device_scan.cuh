#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>

#include "stand_in/launch.h"

namespace cub {

struct DeviceScan {
  // Scratch that is larger than any plain number, and all of it is written: whoever gives less, or shares it, is found.
  static std::size_t scratch_bytes(std::size_t count) { return 768 + count / 8; }

  template <typename T, typename Count>
  static cudaError_t ExclusiveSum(void* scratch, std::size_t& bytes, const T* in, T* out, Count count,
                                  cudaStream_t stream = nullptr) {
    const std::size_t needed = scratch_bytes(static_cast<std::size_t>(count));
    if (scratch == nullptr) {
      bytes = needed;
      return cudaSuccess;
    }
    if (bytes < needed) return cudaErrorInvalidValue;
    return stand_in::enqueue_work(stream, [=] {
      std::memset(scratch, 0xEE, needed);
      T sum{};
      for (Count i = 0; i < count; ++i) {
        const T own = in[i];
        out[i] = sum;
        sum = static_cast<T>(sum + own);
      }
    });
  }
  template <typename T, typename Count>
  static cudaError_t ExclusiveSum(void* scratch, std::size_t& bytes, T* in, T* out, Count count,
                                  cudaStream_t stream = nullptr) requires(!std::is_const_v<T>) {
    return ExclusiveSum(scratch, bytes, static_cast<const T*>(in), out, count, stream);
  }
};

}  // namespace cub
