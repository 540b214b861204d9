// The memory that messages travel in. It belongs to the transport, never to the caller: a message that is still under
// way when a collective fails can then neither read nor write what the caller has freed.
//
// The copy this costs is small because blocks are small and used again: a block stays in the second-level cache, so the
// network's own copy and the addition read it from there.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "peel/buffer.h"

namespace peel::detail {

// The longest message. Longer data go as several: bounded memory, addition beside transfer, and no count that
// overflows. Open MPI sends what is below 64 KiB at once; above, sender and receiver first agree, and on four hosts at
// 1 gbit that made an all-to-all of 4 MiB take 130 to 150 ms with 128 KiB instead of 112 to 118 (the wire's bound:
// 101).
inline constexpr std::size_t kSegmentBytes = std::size_t{60} << 10;

using Memory = Buffer<std::byte>;
using Block = std::shared_ptr<Memory>;

class BlockPool : public std::enable_shared_from_this<BlockPool> {
 public:
  // At most a segment of uninitialised memory, which comes back to the pool when the last owner lets go.
  Block take(std::size_t bytes);

 private:
  void put(std::unique_ptr<Memory> memory) noexcept;

  std::mutex mutex_;
  std::array<std::vector<std::unique_ptr<Memory>>, 2> free_;  // small ones, whole segments
};

}  // namespace peel::detail
