#include "memory.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

namespace stand_in {

namespace {

struct Allocation {
  std::size_t bytes;
  MemoryKind kind;
};

struct Allocations {
  std::mutex mutex;
  std::map<std::uintptr_t, Allocation> by_address;
  std::size_t device_bytes = 0;
};

Allocations& allocations() {
  static auto* all = new Allocations;  // objects that outlive main() may still free what they have
  return *all;
}

constexpr int kFresh = 0xDB;
constexpr int kGone = 0xF7;

}  // namespace

void* allocate(std::size_t bytes, MemoryKind kind) {
  void* memory = nullptr;
  if (posix_memalign(&memory, 256, bytes) != 0 || memory == nullptr) return nullptr;
  std::memset(memory, kFresh, bytes);
  Allocations& all = allocations();
  const std::lock_guard lock(all.mutex);
  all.by_address[reinterpret_cast<std::uintptr_t>(memory)] = {bytes, kind};
  if (kind == MemoryKind::device) all.device_bytes += bytes;
  return memory;
}

bool release(void* memory, MemoryKind kind) {
  Allocations& all = allocations();
  {
    const std::lock_guard lock(all.mutex);
    const auto found = all.by_address.find(reinterpret_cast<std::uintptr_t>(memory));
    if (found == all.by_address.end() || found->second.kind != kind) return false;
    if (kind == MemoryKind::device) all.device_bytes -= found->second.bytes;
    std::memset(memory, kGone, found->second.bytes);
    all.by_address.erase(found);
  }
  std::free(memory);
  return true;
}

Region region_of(const void* memory, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  Allocations& all = allocations();
  const std::lock_guard lock(all.mutex);
  auto next = all.by_address.upper_bound(begin);
  if (next != all.by_address.begin()) {
    const auto& [address, allocation] = *std::prev(next);
    if (begin < address + allocation.bytes || (begin == address && allocation.bytes == 0)) {
      return {allocation.kind, begin + bytes <= address + allocation.bytes};
    }
  }
  return {MemoryKind::pageable, next == all.by_address.end() || begin + bytes <= next->first};
}

std::size_t device_bytes_in_use() {
  Allocations& all = allocations();
  const std::lock_guard lock(all.mutex);
  return all.device_bytes;
}

}  // namespace stand_in
