#include "transport/nccl/device_bit_or.h"

#include "transport/nccl/calls.h"
#include "transport/nccl/or_words.h"

namespace peel::detail {

DeviceBitOr::DeviceBitOr(const Collective& what, const NcclContext& context)
    : DeviceJob(what, context, context.size == 1 || what.data.empty() ? 0 : 1),
      data_(what.data),
      scratch_(what.scratch.data()),
      slices_(what.data.size(), context.size) {}

bool DeviceBitOr::move(const StagingSlot& slot, std::size_t /*piece*/, unsigned stage) {
  return is_short(data_.size(), context().size) ? issue_whole(slot.device.far, stage) : issue_sliced(stage);
}

bool DeviceBitOr::issue_whole(std::byte* copies, unsigned stage) {
  if (stage == 0) {
    gather(data_.data(), copies, data_.size(), context());
    return false;
  }
  check(or_words({.into = data_.data(),
                  .own = data_.data(),
                  .parts = copies,
                  .bytes = data_.size(),
                  .stride = data_.size(),
                  .workers = context().size,
                  .except = context().rank},
                 context().stream),
        "The kernel or_words");
  return true;
}

bool DeviceBitOr::issue_sliced(unsigned stage) {
  switch (stage) {
    case 0:
      trade(slices_, data_.data(), scratch_, context());
      return false;
    case 1:
      return or_and_gather();
    default:
      check(cudaMemcpyAsync(data_.data(), scratch_, data_.size(), cudaMemcpyDeviceToDevice, context().stream),
            "cudaMemcpyAsync");
      return true;
  }
}

// True if the result is where it belongs. Where it is not, the own slice is the one part of scratch that nothing came
// into, and there is all of it, even if the array ends earlier.
bool DeviceBitOr::or_and_gather() {
  const bool in_place = context().size * slices_.pitch() == data_.size();
  std::byte* const all = in_place ? data_.data() : scratch_;
  std::byte* const own = all + context().rank * slices_.pitch();
  check(or_words({.into = own,
                  .own = data_.data() + slices_.begin(context().rank),
                  .parts = scratch_,
                  .bytes = slices_.length(context().rank),
                  .stride = slices_.pitch(),
                  .workers = context().size,
                  .except = context().rank},
                 context().stream),
        "The kernel or_words");
  gather(own, all, slices_.pitch(), context());
  return in_place;
}

}  // namespace peel::detail
