#pragma once

#include <bit>

#include "stand_in/threads.h"

namespace cooperative_groups {

// Lanes of a warp that came to one place together. CUDA leaves open which those are; here it is all that are not held
// up elsewhere, and now and then fewer.
class coalesced_group {
 public:
  explicit coalesced_group(unsigned lanes) : lanes_(lanes) {}

  [[nodiscard]] unsigned long long size() const { return static_cast<unsigned>(std::popcount(lanes_)); }
  [[nodiscard]] unsigned long long thread_rank() const {
    return static_cast<unsigned>(std::popcount(lanes_ & ((1u << (threadIdx.x & 31)) - 1)));
  }
  void sync(stand_in::Where where = stand_in::Where::current()) const { __syncwarp(lanes_, where); }
  template <typename T>
  T shfl(T value, unsigned rank, stand_in::Where where = stand_in::Where::current()) const {
    unsigned rest = lanes_;
    for (; rank != 0; --rank) rest &= rest - 1;
    return __shfl_sync(lanes_, value, std::countr_zero(rest), 32, where);
  }

 private:
  unsigned lanes_;
};

inline coalesced_group coalesced_threads(stand_in::Where where = stand_in::Where::current()) {
  return coalesced_group(stand_in::coalesce_lanes(where));
}

}  // namespace cooperative_groups
