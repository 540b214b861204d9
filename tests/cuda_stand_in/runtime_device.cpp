// Errors, the one device there is, and launches of kernels.
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "cuda_runtime_api.h"
#include "device.h"
#include "last_error.h"
#include "memory.h"
#include "stand_in/launch.h"
#include "thread_block.h"

namespace {

thread_local cudaError_t last_error = cudaSuccess;

constexpr int kSharedByDefault = 48 << 10;
constexpr int kSharedOptIn = 227 << 10;  // of an H200, whose compute capability it states
constexpr std::size_t kDeviceBytes = std::size_t{8} << 30;

std::mutex attributes_mutex;
std::map<const void*, int>& shared_of_kernels() {
  static auto* all = new std::map<const void*, int>;
  return *all;
}
int shared_of(const void* kernel) {
  const std::lock_guard lock(attributes_mutex);
  const auto found = shared_of_kernels().find(kernel);
  return found == shared_of_kernels().end() ? kSharedByDefault : found->second;
}

}  // namespace

namespace stand_in {

cudaError_t told(cudaError_t code) {
  if (code != cudaSuccess) last_error = code;
  return code;
}

cudaError_t enqueue_kernel(const Shape& shape, const void* kernel, std::function<void()> body) {
  const auto threads = std::uint64_t{shape.threads.x} * shape.threads.y * shape.threads.z;
  const auto blocks = std::uint64_t{shape.blocks.x} * shape.blocks.y * shape.blocks.z;
  if (threads == 0 || threads > 1024 || blocks == 0 || shape.blocks.x > 0x7FFFFFFFu || shape.blocks.y > 0xFFFFu ||
      shape.blocks.z > 0xFFFFu) {
    return told(cudaErrorInvalidConfiguration);
  }
  // A launch by <<<>>> does not say which kernel it is, so only the most there is can be checked.
  if (shape.shared > static_cast<std::size_t>(kernel == nullptr ? kSharedOptIn : shared_of(kernel))) {
    return told(cudaErrorInvalidValue);
  }
  const Grid grid{shape.blocks, shape.threads, shape.shared, shape.early};
  return told(Device::get().enqueue(shape.stream, {.work = [grid, body = std::move(body)] {
                                      const std::string failure = run_grid(grid, body);
                                      if (!failure.empty()) Device::get().fail(failure);
                                    }}));
}

cudaError_t enqueue_work(cudaStream_t stream, std::function<void()> work) {
  return told(Device::get().enqueue(stream, {.work = std::move(work)}));
}

}  // namespace stand_in

using stand_in::Device;
using stand_in::told;

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }

const char* cudaGetErrorName(cudaError_t code) {
  switch (code) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidMemcpyDirection:
      return "cudaErrorInvalidMemcpyDirection";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated:
      return "cudaErrorStreamCaptureInvalidated";
  }
  return "an unknown error";
}
const char* cudaGetErrorString(cudaError_t code) { return cudaGetErrorName(code); }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) { return told(device == 0 ? cudaSuccess : cudaErrorInvalidDevice); }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device != 0) return told(cudaErrorInvalidDevice);
  *properties = {};
  std::strcpy(properties->name, "a stand-in on the processor");
  properties->totalGlobalMem = kDeviceBytes;
  properties->sharedMemPerBlock = kSharedByDefault;
  properties->sharedMemPerBlockOptin = kSharedOptIn;
  properties->major = 9;
  properties->minor = 0;
  properties->multiProcessorCount = 132;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (device != 0) return told(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      *value = 1024;
      return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
      *value = 132;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = kSharedOptIn;
      return cudaSuccess;
    case cudaDevAttrClockRate:
    case cudaDevAttrMemoryClockRate:
      *value = 1;
      return cudaSuccess;
  }
  return told(cudaErrorInvalidValue);
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const std::size_t used = stand_in::device_bytes_in_use();
  *total = kDeviceBytes;
  *free = used < kDeviceBytes ? kDeviceBytes - used : 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  if (!Device::get().may_wait()) return told(cudaErrorStreamCaptureUnsupported);
  return told(Device::get().synchronize_all());
}

// How much shared memory a kernel declares itself is known only when it runs; thread_block.cpp looks then.
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* about, const void* kernel) {
  *about = {.sharedSizeBytes = 0,
            .maxThreadsPerBlock = 1024,
            .ptxVersion = 90,
            .binaryVersion = 90,
            .maxDynamicSharedSizeBytes = shared_of(kernel)};
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 || value > kSharedOptIn) {
    return told(cudaErrorInvalidValue);
  }
  const std::lock_guard lock(attributes_mutex);
  shared_of_kernels()[kernel] = value;
  return cudaSuccess;
}
