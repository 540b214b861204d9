// How long work on a stream takes the GPU.
//
// All of it is put on the stream behind a gate, which opens when the last of it is there: launching a kernel takes the
// host 2 to 5 us, and a bucket of 25 MiB is copied in 10, so gaps between kernels would be measured otherwise. Workers
// that train launch ahead, too.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

#include "cli/device_buffer.h"

namespace peel::cli {

class DeviceTimer {
 public:
  enum class Cache { warm, cold };

  DeviceTimer(const DeviceStream& stream, Cache cache) : stream_(stream) {
    check_cuda(cudaEventCreate(&begin_), "cudaEventCreate");
    check_cuda(cudaEventCreate(&end_), "cudaEventCreate");
    if (cache == Cache::cold) flushed_ = DeviceBuffer(kFlushBytes);
  }
  ~DeviceTimer() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  DeviceTimer(const DeviceTimer&) = delete;
  DeviceTimer& operator=(const DeviceTimer&) = delete;

  // In seconds. `work` puts it on the stream; it must have done so before, or loading its kernels would wait for the
  // gate.
  template <typename Work>
  double time(Work work) {
    if (flushed_.size() != 0) {
      check_cuda(cudaMemsetAsync(flushed_.data(), 0, flushed_.size(), stream_), "flushing the cache");
    }
    {
      Gate gate;
      check_cuda(cudaLaunchHostFunc(stream_, Gate::wait, &gate), "cudaLaunchHostFunc");
      const Opener opener{gate, stream_};
      check_cuda(cudaEventRecord(begin_, stream_), "cudaEventRecord");
      work();
      check_cuda(cudaEventRecord(end_, stream_), "cudaEventRecord");
    }
    stream_.wait();
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, begin_, end_), "cudaEventElapsedTime");
    return static_cast<double>(milliseconds) * 1e-3;
  }

 private:
  // Several times the second-level cache of any GPU there is: 50 MB on an H200, 126 on a B200.
  static constexpr std::size_t kFlushBytes = std::size_t{256} << 20;

  struct Gate {
    std::atomic<bool> open = false;
    std::atomic<bool> passed = false;

    // For two seconds at most: if the host should wait for the GPU after all, it gets on, and the time is off.
    static void CUDART_CB wait(void* gate) {
      Gate& self = *static_cast<Gate*>(gate);
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(2);
      while (!self.open && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
      self.passed = true;
    }
  };

  // Also where the work throws: the gate must outlast whoever waits at it.
  struct Opener {
    Gate& gate;
    const DeviceStream& stream;
    ~Opener() {
      gate.open = true;
      while (!gate.passed && cudaStreamQuery(stream) == cudaErrorNotReady) std::this_thread::yield();
    }
  };

  const DeviceStream& stream_;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
  DeviceBuffer flushed_;
};

}  // namespace peel::cli
