// A collective on device memory. It works where the caller's arrays lie, so its pieces carry nothing over the bus: of
// their slot they use the event, and some the memory on the device.
#pragma once

#include "transport/nccl/job.h"

namespace peel::detail {

class DeviceJob : public Job {
 public:
  DeviceJob(const Place& place, std::size_t pieces) : Job(place), pieces_(pieces) {}

  [[nodiscard]] Next next() const noexcept final { return begun < pieces_ ? Next::piece : Next::nothing; }
  std::size_t load(const Slot& /*slot*/, std::size_t /*piece*/) final { return 0; }
  [[nodiscard]] std::size_t result_bytes(std::size_t /*piece*/) const noexcept final { return 0; }
  void finish(const Slot& /*slot*/, std::size_t /*piece*/) final {}

 private:
  std::size_t pieces_;
};

}  // namespace peel::detail
