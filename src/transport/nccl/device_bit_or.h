// OR in device memory, all of it at once: slices are traded into scratch, each worker ORs its own, and the slices are
// gathered. If they are equally long they are gathered in place; else NCCL, whose slices always are, would write past
// the end, so they are gathered in scratch and copied.
//
// Short arrays go whole to everybody instead, into a slot: scratch may be shorter than a copy from everybody.
#pragma once

#include "transport/nccl/device_job.h"
#include "transport/nccl/slices.h"

namespace peel::detail {

class DeviceBitOr final : public DeviceJob {
 public:
  DeviceBitOr(const Collective& what, const NcclContext& context);

 protected:
  bool move(const StagingSlot& slot, std::size_t piece, unsigned stage) override;

 private:
  bool issue_whole(std::byte* copies, unsigned stage);
  bool issue_sliced(unsigned stage);
  bool or_and_gather();

  std::span<std::byte> data_;
  std::byte* scratch_;
  Slices slices_;
};

}  // namespace peel::detail
