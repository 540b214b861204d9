#include "allreduce/scratch.h"

#include <mutex>
#include <utility>

namespace peel {

using detail::ChunkScratch;

struct ScratchPool::Idle {
  mutable std::mutex mutex;
  std::vector<std::unique_ptr<ChunkScratch>> scratch;  // the last one was used last, and is the likeliest in a cache
};

ScratchPool::ScratchPool() : idle_(std::make_unique<Idle>()) {}
ScratchPool::~ScratchPool() = default;

void ScratchPool::trim() {
  std::vector<std::unique_ptr<ChunkScratch>> freed;  // once the lock is open
  const std::lock_guard lock(idle_->mutex);
  freed.swap(idle_->scratch);
}

std::size_t ScratchPool::memory_bytes() const {
  const std::lock_guard lock(idle_->mutex);
  std::size_t bytes = 0;
  for (const auto& one : idle_->scratch) bytes += one->memory_bytes();
  return bytes;
}

namespace detail {

void forget(Collective& what) {
  what.memory = Memory::host;
  what.data = {};
  what.send.clear();
  what.into.clear();
  what.even = false;
  what.scratch = {};
  what.fetch.clear();
  what.likely_bytes = 0;
}

// Buffers are emptied, so that none is copied when it grows.
void ChunkScratch::prepare(unsigned workers) {
  shares.resize(workers);
  messages.resize(workers);
  message.index.resize(0);
  message.payload.resize(0);
  list.resize(0);
  words.resize(0);
  values.resize(0);
  own_message.resize(0);
  for (Buffer<std::byte>& one : messages) one.resize(0);
  for (Collective& one : collectives) {
    forget(one);
    one.received.resize(workers);
    for (Buffer<std::byte>& buffer : one.received) buffer.resize(0);
  }
}

std::size_t ChunkScratch::memory_bytes() const {
  std::size_t bytes = support.memory_bytes() + workspace.memory_bytes() + message.index.capacity() * 8 +
                      message.payload.capacity() + list.capacity() * 8 + words.capacity() * 8 + values.capacity() +
                      own_message.capacity() + items.capacity() * 8;
  if (device != nullptr) bytes += device->memory_bytes();
  for (const PositionBuffers& one : shares) bytes += one.words.capacity() * 8 + one.positions.capacity() * 4;
  for (const auto& one : messages) bytes += one.capacity();
  for (const Collective& one : collectives) {
    for (const auto& buffer : one.received) bytes += buffer.capacity();
  }
  return bytes;
}

LentScratch::LentScratch(std::shared_ptr<ScratchPool> pool, std::shared_ptr<Device> device, unsigned workers)
    : pool_(std::move(pool)), device_(std::move(device)) {
  {
    const std::lock_guard lock(pool_->idle_->mutex);
    auto& idle = pool_->idle_->scratch;
    if (!idle.empty()) {
      scratch_ = std::move(idle.back());
      idle.pop_back();
    }
  }
  if (scratch_ == nullptr) scratch_ = std::make_unique<ChunkScratch>();
  scratch_->prepare(workers);
  if (device_ != nullptr) scratch_->device = device_->lend_slot();
}

LentScratch::~LentScratch() {
  if (scratch_->device != nullptr) device_->take_back(std::move(scratch_->device));
  const std::lock_guard lock(pool_->idle_->mutex);
  try {
    pool_->idle_->scratch.push_back(std::move(scratch_));
  } catch (...) {  // no memory to keep it in a list: it is freed
  }
}

}  // namespace detail

}  // namespace peel
