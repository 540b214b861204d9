// all_to_all and all_gather in device memory, where lengths are known on both sides: one group of sends and receives,
// of broadcasts, or of all-gathers, from where the parts lie to where they belong.
#pragma once

#include "transport/nccl/device_job.h"

namespace peel::detail {

class DeviceDelivery final : public DeviceJob {
 public:
  DeviceDelivery(const Collective& what, const NcclContext& context);

 protected:
  bool move(const StagingSlot& slot, std::size_t piece, unsigned stage) override;

 private:
  void gather(Group& group) const;
  void broadcast(Group& group) const;
  void deliver(Group& group) const;

  const Collective& what_;
};

}  // namespace peel::detail
