#include "peel/buffer.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace peel::detail {

void* allocate(std::size_t bytes) {
  constexpr std::size_t kLine = 64;
  constexpr std::size_t kHugePage = std::size_t{1} << 21;
  // Large buffers are walked in hundreds of streams at once (one per block); with small pages each stream costs a TLB
  // entry and each first touch a fault.
  const bool huge = bytes >= 2 * kHugePage;
  const std::size_t alignment = huge ? kHugePage : kLine;
  if (bytes > static_cast<std::size_t>(-1) - alignment) throw std::bad_alloc();
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
  if (memory == nullptr) throw std::bad_alloc();
#if defined(__linux__)
  if (huge) (void)madvise(memory, rounded, MADV_HUGEPAGE);  // advice: failing changes nothing but speed
#endif
  return memory;
}

void release(void* memory) noexcept { std::free(memory); }

}  // namespace peel::detail
