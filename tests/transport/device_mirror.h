// Memory on the device with a twin on the host: tests fill and read the twin. Ranges lie apart, and what lies between
// them must stay as it was: who writes past an end is found out.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "nccl_world.h"

namespace peel::testing {

// The same range on both sides.
struct Twins {
  std::span<std::byte> host;
  std::span<std::byte> device;
};

class Mirror {
 public:
  // Allocating may wait for kernels that wait for this worker: to be made before the first collective of any.
  Mirror(std::size_t bytes, cudaStream_t stream) : bytes_(bytes), stream_(stream) {
    void* memory = nullptr;
    require(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault), "cudaHostAlloc");
    host_ = static_cast<std::byte*>(memory);
    require(cudaMalloc(&memory, bytes), "cudaMalloc");
    device_ = static_cast<std::byte*>(memory);
  }
  Mirror(const Mirror&) = delete;
  Mirror& operator=(const Mirror&) = delete;

  // Not in a destructor: after an error freeing could wait for ever.
  void release() {
    require(cudaFree(device_), "cudaFree");
    require(cudaFreeHost(host_), "cudaFreeHost");
  }

  void clear() {
    taken_.clear();
    end_ = 0;
  }

  // A range that begins `shift` bytes after a boundary of 256; untouched until the host fills it.
  Twins take(std::size_t bytes, std::size_t shift = 0) {
    const std::size_t begin = end_ + kGap + shift;
    const std::size_t end = (begin + bytes + kGap - 1) / kGap * kGap;
    if (end + kGap > bytes_) throw Error(ErrorCode::invalid_argument, "The test's mirror is too small.");
    std::fill(host_ + end_, host_ + end + kGap, kUntouched);
    end_ = end;
    taken_.push_back({begin, begin + bytes});
    return {{host_ + begin, bytes}, {device_ + begin, bytes}};
  }

  // Both put a copy of all ranges on the stream, or on another; the second waits for it.
  void upload() { copy(device_, host_, cudaMemcpyHostToDevice, stream_); }
  void download() { download(stream_); }
  void download(cudaStream_t stream) {
    copy(host_, device_, cudaMemcpyDeviceToHost, stream);
    require(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }

  [[nodiscard]] bool gaps_are_untouched() const {
    std::size_t begin = 0;
    for (const Range& range : taken_) {
      if (!is_untouched({host_ + begin, range.begin - begin})) return false;
      begin = range.end;
    }
    return is_untouched({host_ + begin, end_ + kGap - begin});
  }
  static bool is_untouched(std::span<const std::byte> range) {
    return std::all_of(range.begin(), range.end(), [](std::byte b) { return b == kUntouched; });
  }

 private:
  static constexpr std::byte kUntouched{0xA5};
  static constexpr std::size_t kGap = 256;

  struct Range {
    std::size_t begin;
    std::size_t end;
  };

  void copy(std::byte* to, const std::byte* from, cudaMemcpyKind direction, cudaStream_t stream) {
    const std::size_t bytes = taken_.empty() ? 0 : end_ + kGap;
    if (bytes != 0) require(cudaMemcpyAsync(to, from, bytes, direction, stream), "cudaMemcpyAsync");
  }

  std::size_t bytes_;
  cudaStream_t stream_;
  std::byte* host_ = nullptr;
  std::byte* device_ = nullptr;
  std::vector<Range> taken_;
  std::size_t end_ = 0;  // a gap follows
};

}  // namespace peel::testing
