#include "allreduce/cuda/device_memory.h"

#include <algorithm>
#include <string>

#include "peel/error.h"

namespace peel::cuda::detail {

void require(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return;
  throw Error(ErrorCode::transport, std::string(call) + " failed: " + cudaGetErrorString(code) +
                                        ". See whether the GPU works (nvidia-smi) and has memory left; then start the "
                                        "step again on all workers.");
}

CurrentDevice::CurrentDevice(int device) {
  int current = 0;
  require(cudaGetDevice(&current), "cudaGetDevice");
  if (current == device) return;
  require(cudaSetDevice(device), "cudaSetDevice");
  earlier_ = current;
}

CurrentDevice::~CurrentDevice() {
  if (earlier_ >= 0) (void)cudaSetDevice(earlier_);
}

namespace {

// Keeps what it has, since giving memory back to the system may wait for the GPU, and never lets streams wait for each
// other.
cudaMemPool_t make_pool(int device) {
  cudaMemPoolProps what{};
  what.allocType = cudaMemAllocationTypePinned;
  what.location.type = cudaMemLocationTypeDevice;
  what.location.id = device;
  cudaMemPool_t pool = nullptr;
  require(cudaMemPoolCreate(&pool, &what), "cudaMemPoolCreate");
  int no = 0;
  std::uint64_t all = ~std::uint64_t{0};
  cudaError_t code = cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowInternalDependencies, &no);
  if (code == cudaSuccess) code = cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all);
  if (code != cudaSuccess) (void)cudaMemPoolDestroy(pool);
  require(code, "cudaMemPoolSetAttribute");
  return pool;
}

}  // namespace

MemorySource::MemorySource(cudaStream_t stream, Allocator allocator)
    : stream_(stream), allocator_(std::move(allocator)) {
  require(cudaGetDevice(&device_), "cudaGetDevice");
  if (allocator_.allocate) return;
  pool_ = make_pool(device_);
  const cudaError_t code = cudaStreamCreateWithFlags(&own_, cudaStreamNonBlocking);
  if (code != cudaSuccess) (void)cudaMemPoolDestroy(pool_);
  require(code, "cudaStreamCreateWithFlags");
}

MemorySource::~MemorySource() {
  if (pool_ != nullptr) (void)cudaMemPoolDestroy(pool_);  // once all that came from it has been freed
  if (own_ != nullptr) (void)cudaStreamDestroy(own_);
}

void* MemorySource::take(std::size_t bytes) {
  if (allocator_.allocate) return allocator_.allocate(bytes);
  void* memory = nullptr;
  require(cudaMallocFromPoolAsync(&memory, bytes, pool_, stream_), "cudaMallocFromPoolAsync");
  return memory;
}

void MemorySource::give(void* memory, bool at_rest) noexcept {
  if (allocator_.allocate) {
    if (allocator_.release) allocator_.release(memory);
    return;
  }
  (void)cudaFreeAsync(memory, at_rest ? own_ : stream_);
}

void MemorySource::trim() noexcept {
  if (pool_ == nullptr) return;
  if (cudaStreamSynchronize(own_) == cudaSuccess) (void)cudaMemPoolTrimTo(pool_, 0);
}

std::byte* DeviceArray::ensure(std::size_t bytes) {
  constexpr std::size_t kUnit = std::size_t{64} << 10;
  const std::size_t wanted = (bytes + bytes / 16 + kUnit - 1) / kUnit * kUnit;  // steps differ by a little
  used_ = std::max(used_, wanted);
  if (bytes <= bytes_) return data_;
  release(/*at_rest=*/false);
  data_ = static_cast<std::byte*>(source_->take(wanted));
  bytes_ = wanted;
  return data_;
}

void DeviceArray::release(bool at_rest) noexcept {
  if (data_ != nullptr) source_->give(data_, at_rest);
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace peel::cuda::detail
