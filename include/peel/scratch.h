// Memory that exchanges work in beside the array: it is lent to the chunks under way and kept for those that come next,
// whichever state they belong to. A communicator has a pool, and a driver of exchanges may give them one (World).
#pragma once

#include <cstddef>
#include <memory>

namespace peel {

namespace detail {
class LentScratch;
}

// Any number of threads may use it.
class ScratchPool {
 public:
  ScratchPool();
  ~ScratchPool();
  ScratchPool(const ScratchPool&) = delete;
  ScratchPool& operator=(const ScratchPool&) = delete;

  void trim();                                     // frees what no exchange works in
  [[nodiscard]] std::size_t memory_bytes() const;  // of what trim() would free

 private:
  friend class detail::LentScratch;
  struct Idle;
  std::unique_ptr<Idle> idle_;
};

}  // namespace peel
