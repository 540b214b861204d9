// Memory, streams and errors of CUDA for the program's own use. Only for the modules cuda and nccl.
#pragma once

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <cstddef>
#include <utility>

#include "cli/failure.h"

namespace peel::cli {

inline void check_cuda(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return;
  throw Failure(
      fmt::format("{} failed: {}; run peel doctor to see what this GPU can do", call, cudaGetErrorString(code)));
}

class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(std::size_t bytes) : bytes_(bytes) {
    if (cudaMalloc(&memory_, bytes == 0 ? 1 : bytes) == cudaSuccess) return;
    throw Failure(fmt::format("the GPU has no {} bytes left; use fewer elements, or a GPU that is idle", bytes));
  }
  DeviceBuffer(DeviceBuffer&& other) noexcept { swap(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~DeviceBuffer() { cudaFree(memory_); }

  // Complete when it returns: streams that do not wait for the default one may use it.
  void upload(const void* from, std::size_t bytes) {
    check_cuda(cudaMemcpy(memory_, from, bytes, cudaMemcpyHostToDevice), "copying to the GPU");
    check_cuda(cudaStreamSynchronize(nullptr), "copying to the GPU");
  }
  void download(void* to, std::size_t bytes) const {
    check_cuda(cudaMemcpy(to, memory_, bytes, cudaMemcpyDeviceToHost), "copying from the GPU");
  }

  [[nodiscard]] std::byte* data() const noexcept { return static_cast<std::byte*>(memory_); }
  template <typename T>
  [[nodiscard]] T* as() const noexcept {
    return static_cast<T*>(memory_);
  }
  [[nodiscard]] std::size_t size() const noexcept { return bytes_; }

 private:
  void swap(DeviceBuffer& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
  }

  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

class DeviceStream {
 public:
  DeviceStream() { check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate"); }
  ~DeviceStream() { cudaStreamDestroy(stream_); }
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;
  operator cudaStream_t() const noexcept { return stream_; }
  void wait() const { check_cuda(cudaStreamSynchronize(stream_), "work on the GPU"); }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace peel::cli
