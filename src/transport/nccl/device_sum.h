// SUM in device memory: ncclAllReduce in place. 16-bit integers pass through the slots piece by piece, where they are
// wider for a while; that takes no memory of the caller.
#pragma once

#include "transport/nccl/device_job.h"

namespace peel::detail {

class DeviceSum final : public DeviceJob {
 public:
  DeviceSum(const Collective& what, const NcclContext& context);

 protected:
  bool move(const StagingSlot& slot, std::size_t piece, unsigned stage) override;

 private:
  bool issue_widened(std::byte* wide, std::span<std::byte> numbers, unsigned stage);
  void add_up(std::byte* numbers, std::size_t count);

  std::span<std::byte> data_;
  ElementType type_;
};

}  // namespace peel::detail
