#include "allreduce/scratch.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "codec/engine.h"

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

namespace {

template <typename Support, typename Visit>
void visit_support(Support& support, const Visit& visit) {
  visit(support.words);
  for (auto& segment : support.segments) visit(segment.storage);
}

// All buffers in host memory, each once.
template <typename Scratch, typename Visit>
void visit_buffers(Scratch& scratch, const Visit& visit) {
  visit_support(scratch.support.data(), visit);
  auto& workspace = scratch.workspace.data();
  visit_support(workspace.support, visit);
  visit(workspace.words);
  visit(workspace.values);
  visit(workspace.old_values);
  visit(workspace.item_blocks);
  visit(workspace.item_locals);
  visit(workspace.starts);
  visit(workspace.cursors);
  visit(workspace.dealt_locals);
  visit(workspace.dealt);
  visit(workspace.sources);
  visit(workspace.cells);
  for (auto& one : workspace.scratch) visit(one);
  visit(scratch.message.index);
  visit(scratch.message.payload);
  visit(scratch.list);
  visit(scratch.words);
  visit(scratch.values);
  for (auto& one : scratch.shares) {
    visit(one.words);
    visit(one.positions);
  }
  for (auto& one : scratch.messages) visit(one);
  visit(scratch.own_message);
  visit(scratch.items);
  for (auto& collective : scratch.collectives) {
    for (auto& one : collective.received) visit(one);
  }
}

void empty(SupportData& support) { support.items = support.plan = support.scanned = 0; }

}  // namespace

// Buffers are emptied: none is copied when it grows, and their sizes tell what this chunk uses.
void ChunkScratch::prepare(unsigned workers) {
  visit_buffers(*this, [](auto& buffer) { buffer.resize(0); });
  empty(support.data());
  empty(workspace.data().support);
  shares.resize(workers);
  messages.resize(workers);
  for (Collective& one : collectives) {
    forget(one);
    one.received.resize(workers);
  }
  most_used_ = 0;
}

std::size_t ChunkScratch::memory_bytes() const {
  std::size_t bytes = device == nullptr ? 0 : device->memory_bytes();
  visit_buffers(*this, [&](const auto& buffer) { bytes += buffer.capacity() * sizeof(*buffer.data()); });
  return bytes;
}

void ChunkScratch::note_use() {
  std::size_t bytes = device == nullptr ? 0 : device->used_bytes();
  visit_buffers(*this, [&](const auto& buffer) { bytes += buffer.size() * sizeof(*buffer.data()); });
  most_used_ = std::max(most_used_, bytes);
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
