#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "stand_in/launch.h"

namespace cub {

struct DeviceRadixSort {
  template <typename Key, typename Count>
  static cudaError_t SortKeys(void* scratch, std::size_t& bytes, const Key* in, Key* out, Count count,
                              int /*begin_bit*/ = 0, int /*end_bit*/ = 8 * sizeof(Key), cudaStream_t stream = nullptr) {
    const std::size_t needed = 1024 + static_cast<std::size_t>(count) * sizeof(Key);
    if (scratch == nullptr) {
      bytes = needed;
      return cudaSuccess;
    }
    if (bytes < needed) return cudaErrorInvalidValue;
    return stand_in::enqueue_work(stream, [=] {
      std::memset(scratch, 0xEE, needed);
      std::copy(in, in + count, out);
      std::sort(out, out + count);
    });
  }
};

}  // namespace cub
