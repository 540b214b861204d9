#include "allreduce/cuda/gpu.h"

#include <optional>

#include "allreduce/cuda/device_place.h"
#include "allreduce/cuda/numbers.h"
#include "peel/error.h"

namespace peel::cuda {

namespace detail {

Interval::Interval() {
  require(cudaEventCreate(&begin_), "cudaEventCreate");
  require(cudaEventCreate(&end_), "cudaEventCreate");
}
Interval::~Interval() {
  if (begin_ != nullptr) (void)cudaEventDestroy(begin_);
  if (end_ != nullptr) (void)cudaEventDestroy(end_);
}
void Interval::begin(cudaStream_t stream) { require(cudaEventRecord(begin_, stream), "cudaEventRecord"); }
void Interval::end(cudaStream_t stream) noexcept { (void)cudaEventRecord(end_, stream); }
double Interval::seconds() const {
  float milliseconds = 0;
  require(cudaEventElapsedTime(&milliseconds, begin_, end_), "cudaEventElapsedTime");
  return milliseconds / 1e3;
}

GpuSlot::GpuSlot(const std::shared_ptr<MemorySource>& source)
    : workspace(source),
      words(source),
      index(source),
      payload(source),
      support(source),
      arrived_index(source),
      arrived_values(source),
      opened(source),
      scratch(source) {}

std::size_t GpuSlot::memory_bytes() const noexcept {
  std::size_t bytes = 0;
  for (const auto array : kArrays) bytes += (this->*array).bytes();
  return bytes;
}

std::size_t GpuSlot::used_bytes() const noexcept {
  std::size_t bytes = 0;
  for (const auto array : kArrays) bytes += (this->*array).used();
  return bytes;
}

void GpuSlot::begin_use() noexcept {
  for (const auto array : kArrays) (this->*array).begin_use();
}

void GpuSlot::release(bool at_rest) noexcept {
  for (const auto array : kArrays) (this->*array).release(at_rest);
}

HostBlocks::HostBlocks(std::size_t bytes_each) : bytes_each_(bytes_each) {
  // Two drivers may share a device, and blocks of exchanges that were abandoned do not come back: as many to spare.
  for (std::size_t i = 0; i < 4 * peel::detail::kChunksInFlight; ++i) make();
}

void HostBlocks::free() noexcept {
  for (std::byte* block : free_) (void)cudaFreeHost(block);
  free_.clear();
}

void HostBlocks::make() {
  void* memory = nullptr;
  require(cudaHostAlloc(&memory, bytes_each_, cudaHostAllocDefault), "cudaHostAlloc");
  free_.push_back(static_cast<std::byte*>(memory));
}

std::byte* HostBlocks::borrow() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) make();
  std::byte* const block = free_.back();
  free_.pop_back();
  return block;
}

void HostBlocks::give_back(std::byte* block) {
  const std::lock_guard lock(mutex_);
  free_.push_back(block);
}

Gpu::Gpu(cudaStream_t stream, unsigned workers, Allocator allocator)
    : stream_(stream),
      workers_(workers),
      source_(std::make_shared<MemorySource>(stream, std::move(allocator))),
      host_(Numbers::bytes_for(workers)) {}

// A kernel whose peers are gone never ends, and nobody shall wait for it.
Gpu::~Gpu() {
  std::optional<CurrentDevice> current;
  try {
    current.emplace(ordinal());
  } catch (...) {  // the driver is shutting down, or broken: a destructor goes on without it
  }
  if (free_idle()) host_.free();
}

std::shared_ptr<std::byte> Gpu::make_memory(std::size_t bytes) {
  const CurrentDevice current(ordinal());
  auto array = std::make_shared<DeviceArray>(source_);
  std::byte* const data = array->ensure(bytes);
  return {std::move(array), data};
}

void Gpu::clear(void* memory, std::size_t bytes) {
  const CurrentDevice current(ordinal());
  require(cudaMemsetAsync(memory, 0, bytes, stream_), "cudaMemsetAsync");
}

std::unique_ptr<peel::detail::DeviceSlot> Gpu::lend_slot() {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<GpuSlot> slot = std::move(idle_.back());
      idle_.pop_back();
      slot->begin_use();
      return slot;
    }
  }
  return std::make_unique<GpuSlot>(source_);
}

void Gpu::take_back(std::unique_ptr<peel::detail::DeviceSlot> slot) noexcept {
  std::unique_ptr<GpuSlot> own(static_cast<GpuSlot*>(slot.release()));
  try {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(own));
  } catch (...) {  // no memory for a list of them: it goes back behind what is on the stream
    own->abandon();
  }
}

void Gpu::trim() {
  const CurrentDevice current(ordinal());
  if (free_idle()) source_->trim();
}

// The slots are taken before the stream is asked: everything that uses them is on the stream by then, so an idle stream
// has finished it. In the other order a lane could hand back a slot in between whose kernels have just begun. The lock
// is open again before anything waits for an allocator.
bool Gpu::free_idle() noexcept {
  std::vector<std::unique_ptr<GpuSlot>> freed;
  {
    const std::lock_guard lock(mutex_);
    freed.swap(idle_);
  }
  const bool at_rest = cudaStreamQuery(stream_) == cudaSuccess;
  if (!at_rest) (void)cudaGetLastError();  // or the caller's next look at it would find this
  for (const auto& slot : freed) slot->release(at_rest);
  return at_rest;
}

std::unique_ptr<peel::detail::ChunkPlace> Gpu::make_place() { return std::make_unique<DevicePlace>(*this); }

}  // namespace detail

std::shared_ptr<Device> make_device(cudaStream_t stream, unsigned workers, Allocator allocator) {
  if (workers == 0) throw Error(ErrorCode::invalid_argument, "A device works for at least one worker.");
  return std::make_shared<detail::Gpu>(stream, workers, std::move(allocator));
}

}  // namespace peel::cuda
