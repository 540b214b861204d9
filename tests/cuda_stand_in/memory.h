// All memory that the runtime has given out. Each piece is an allocation of its own, pools' too, so that the address
// sanitizer sees where it ends and when it is gone.
#pragma once

#include <cstddef>

namespace stand_in {

enum class MemoryKind { pageable, pinned, device };

// Full of garbage, aligned to 256 bytes as CUDA aligns it; null where there is no memory.
void* allocate(std::size_t bytes, MemoryKind kind);

// False where it is not the beginning of an allocation of this kind.
bool release(void* memory, MemoryKind kind);

struct Region {
  MemoryKind kind;
  bool whole;  // it lies in one allocation, or all of it is the host's own
};
Region region_of(const void* memory, std::size_t bytes);

std::size_t device_bytes_in_use();

}  // namespace stand_in
