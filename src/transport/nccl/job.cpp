#include "transport/nccl/job.h"

#include "transport/nccl/bit_or.h"
#include "transport/nccl/delivery.h"
#include "transport/nccl/device_bit_or.h"
#include "transport/nccl/device_delivery.h"
#include "transport/nccl/device_sum.h"
#include "transport/nccl/sum.h"

namespace peel::detail {
namespace {

std::unique_ptr<Job> make_host_job(Collective& what, const Place& place) {
  switch (what.kind) {
    case Collective::Kind::sum:
      return std::make_unique<Sum>(what, place);
    case Collective::Kind::bit_or:
      return std::make_unique<BitOr>(what, place);
    default:
      return std::make_unique<Delivery>(what, place);
  }
}

std::unique_ptr<Job> make_device_job(const Collective& what, const Place& place) {
  switch (what.kind) {
    case Collective::Kind::sum:
      return std::make_unique<DeviceSum>(what, place);
    case Collective::Kind::bit_or:
      return std::make_unique<DeviceBitOr>(what, place);
    case Collective::Kind::settle:
      return std::make_unique<Settling>(what, place);
    default:
      return std::make_unique<DeviceDelivery>(what, place);
  }
}

}  // namespace

std::unique_ptr<Job> make_job(Collective& what, const Place& place) {
  return what.memory == Memory::device ? make_device_job(what, place) : make_host_job(what, place);
}

}  // namespace peel::detail
