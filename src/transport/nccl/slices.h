// An array of words cut into a slice for each worker, and how slices travel: what an OR among workers is made of.
//
//   trade     everybody sends everybody their slice
//   gather    everybody gets everybody's slice
//
// 2 (W - 1) / W of the array leave each worker by both, as in a ring.
#pragma once

#include <algorithm>
#include <cstddef>

#include "transport/nccl/job.h"

namespace peel::detail {

// All slices are equally long, but for the last ones, which end with the array or are empty.
class Slices {
 public:
  Slices(std::size_t bytes, unsigned workers) noexcept
      : bytes_(bytes), pitch_(or_scratch_bytes(bytes, workers) / workers) {}

  [[nodiscard]] std::size_t pitch() const noexcept { return pitch_; }  // from one to the next: a multiple of 16
  [[nodiscard]] std::size_t begin(unsigned worker) const noexcept { return std::min(worker * pitch_, bytes_); }
  [[nodiscard]] std::size_t length(unsigned worker) const noexcept { return std::min(pitch_, bytes_ - begin(worker)); }

 private:
  std::size_t bytes_;
  std::size_t pitch_;
};

// Up to this length an array is sent whole: one call of NCCL and not two. An exchange opens with an OR of a few words,
// where only latency counts: four workers on one H200 took 180 us for 4 KiB so, and 450 us for 16 KiB in slices. All
// copies must fit in a slot.
inline constexpr std::size_t kShort = std::size_t{8} << 10;
inline bool is_short(std::size_t bytes, unsigned workers) noexcept {
  return bytes <= kShort && bytes * workers <= kSlotBytes;
}

// Of the array `near`, slice w goes to worker w; what w sent lies at w * pitch() of `far` then. The own part of `far`
// is left alone. One group of NCCL.
void trade(const Slices& slices, const std::byte* near, std::byte* far, const NcclContext& context);

// `own` of worker w lies at w * bytes of `all` then, where it may have been before.
void gather(const std::byte* own, std::byte* all, std::size_t bytes, const NcclContext& context);

}  // namespace peel::detail
