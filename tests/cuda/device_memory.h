// Memory of the GPU between fences. The codec must stay within what it was given: bytes before and after every buffer
// hold a pattern that is looked at after each verb, and the buffer itself holds garbage until a verb has written it.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "scale.h"

namespace peel::testing {

inline void require(cudaError_t code, const char* call) {
  if (code != cudaSuccess) throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(code));
}

inline int gpus() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

class Stream {
 public:
  Stream() { require(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate"); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const noexcept { return stream_; }
  void wait() const { require(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

 private:
  cudaStream_t stream_ = nullptr;
};

class DeviceBytes {
 public:
  static constexpr std::size_t kFence = 256;
  static constexpr int kFenceByte = 0xA5;
  static constexpr int kGarbage = 0xCD;

  explicit DeviceBytes(const char* name) : name_(name) {}
  ~DeviceBytes() { cudaFree(memory_); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;

  // Garbage of this length, `offset` bytes past a boundary of 256. Memory is kept from call to call, but not where a
  // sanitizer watches: it must see where a buffer ends, and that nobody has written it yet.
  void reset(std::size_t bytes, std::size_t offset = 0) {
    front_ = kFence + offset;
    bytes_ = bytes;
    const std::size_t all = front_ + bytes + kFence;
    if (all > capacity_ || small_scale()) grow(all);
    require(cudaMemset(memory_, kFenceByte, front_), "cudaMemset");
    if (bytes != 0 && !small_scale()) require(cudaMemset(data(), kGarbage, bytes), "cudaMemset");
    require(cudaMemset(data() + bytes, kFenceByte, kFence), "cudaMemset");
  }

  // Complete when it returns: a copy from pageable memory may go on after cudaMemcpy, and other streams do not wait.
  void upload(const void* from, std::size_t bytes) {
    if (bytes > bytes_) throw std::logic_error(std::string(name_) + " is too small for the test's own data");
    if (bytes != 0) require(cudaMemcpy(data(), from, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
    require(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  }
  void download(void* to, std::size_t bytes, std::size_t begin = 0) const {
    if (begin + bytes > bytes_) throw std::logic_error(std::string(name_) + " is shorter than what is asked of it");
    if (bytes != 0) require(cudaMemcpy(to, data() + begin, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
  }

  [[nodiscard]] bool fenced() const {
    if (memory_ == nullptr) return true;
    std::vector<unsigned char> fences(front_ + kFence);
    require(cudaMemcpy(fences.data(), memory_, front_, cudaMemcpyDeviceToHost), "cudaMemcpy");
    require(cudaMemcpy(fences.data() + front_, data() + bytes_, kFence, cudaMemcpyDeviceToHost), "cudaMemcpy");
    return std::all_of(fences.begin(), fences.end(), [](unsigned char byte) { return byte == kFenceByte; });
  }

  [[nodiscard]] std::byte* data() const noexcept { return memory_ + front_; }
  template <typename T>
  [[nodiscard]] T* as() const noexcept {
    return reinterpret_cast<T*>(data());
  }
  [[nodiscard]] std::size_t size() const noexcept { return bytes_; }
  [[nodiscard]] const char* name() const noexcept { return name_; }

 private:
  void grow(std::size_t all) {
    require(cudaFree(memory_), "cudaFree");
    memory_ = nullptr;
    capacity_ = 0;
    void* memory = nullptr;
    require(cudaMalloc(&memory, all), "cudaMalloc");
    memory_ = static_cast<std::byte*>(memory);
    capacity_ = all;
  }

  const char* name_;
  std::byte* memory_ = nullptr;
  std::size_t capacity_ = 0;
  std::size_t front_ = kFence;
  std::size_t bytes_ = 0;
};

// All that the verbs of one worker touch. Tests that follow each other share one, so that each finds the leavings of
// the last.
struct DeviceMemory {
  DeviceBytes x{"x"}, index{"index"}, payload{"payload"}, other_index{"the other index"},
      other_payload{"the other payload"}, support{"support"}, items{"items"}, values{"values"}, lost{"lost items"},
      counts{"counts"}, workspace{"workspace"}, status{"status"};

  [[nodiscard]] std::array<const DeviceBytes*, 12> all() const {
    return {&x,     &index,  &payload, &other_index, &other_payload, &support,
            &items, &values, &lost,    &counts,      &workspace,     &status};
  }

  static DeviceMemory& shared() {
    static auto* memory = new DeviceMemory;  // never freed: CUDA may be gone before the last object of a program is
    return *memory;
  }
};

}  // namespace peel::testing
