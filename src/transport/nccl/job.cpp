#include "transport/nccl/job.h"

#include "transport/nccl/bit_or.h"
#include "transport/nccl/delivery.h"
#include "transport/nccl/device_bit_or.h"
#include "transport/nccl/device_delivery.h"
#include "transport/nccl/device_sum.h"
#include "transport/nccl/sum.h"

namespace peel::detail {
namespace {

std::unique_ptr<Job> make_host_job(Collective& what, const NcclContext& context) {
  switch (what.kind) {
    case Collective::Kind::sum:
      return std::make_unique<Sum>(what, context);
    case Collective::Kind::bit_or:
      return std::make_unique<BitOr>(what, context);
    default:
      return std::make_unique<Delivery>(what, context);
  }
}

std::unique_ptr<Job> make_device_job(const Collective& what, const NcclContext& context) {
  switch (what.kind) {
    case Collective::Kind::sum:
      return std::make_unique<DeviceSum>(what, context);
    case Collective::Kind::bit_or:
      return std::make_unique<DeviceBitOr>(what, context);
    case Collective::Kind::settle:
      return std::make_unique<Settling>(what, context);
    default:
      return std::make_unique<DeviceDelivery>(what, context);
  }
}

}  // namespace

std::unique_ptr<Job> make_job(Collective& what, const NcclContext& context) {
  return what.memory == Memory::device ? make_device_job(what, context) : make_host_job(what, context);
}

}  // namespace peel::detail
