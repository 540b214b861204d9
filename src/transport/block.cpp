#include "transport/block.h"

namespace peel::detail {
namespace {

// Control messages are small and many: 64 workers in one process have 4032 of them under way.
constexpr std::size_t kSmall = 4096;
// Kept for the next collective: 128 segments, or 7.5 MiB, and as many small blocks as a crowd needs.
constexpr std::array<std::size_t, 2> kKept = {1024, 128};

std::size_t kind_of(std::size_t bytes) { return bytes <= kSmall ? 0 : 1; }

}  // namespace

Block BlockPool::take(std::size_t bytes) {
  std::unique_ptr<Memory> memory;
  {
    const std::lock_guard lock(mutex_);
    std::vector<std::unique_ptr<Memory>>& free = free_[kind_of(bytes)];
    if (!free.empty()) {
      memory = std::move(free.back());
      free.pop_back();
    }
  }
  if (memory == nullptr) {
    memory = std::make_unique<Memory>();
    memory->reserve(bytes <= kSmall ? kSmall : kSegmentBytes);
  }
  memory->resize(bytes);
  // The pool may be gone before its last block: a broken communicator leaves messages behind.
  return {memory.release(), [pool = weak_from_this()](Memory* raw) {
            std::unique_ptr<Memory> owned(raw);
            if (const std::shared_ptr<BlockPool> home = pool.lock()) home->put(std::move(owned));
          }};
}

void BlockPool::put(std::unique_ptr<Memory> memory) noexcept {
  const std::size_t kind = kind_of(memory->capacity());
  const std::lock_guard lock(mutex_);
  std::vector<std::unique_ptr<Memory>>& free = free_[kind];
  if (free.size() >= kKept[kind]) return;
  if (free.capacity() == 0) {
    try {
      free.reserve(kKept[kind]);
    } catch (const std::bad_alloc&) {
      return;  // then it is not kept
    }
  }
  free.push_back(std::move(memory));
}

}  // namespace peel::detail
