#include "transport/nccl/job.h"

#include "transport/nccl/bit_or.h"
#include "transport/nccl/delivery.h"
#include "transport/nccl/sum.h"

namespace peel::detail {

std::unique_ptr<Job> make_job(Collective& what, const Place& place) {
  switch (what.kind) {
    case Collective::Kind::sum:
      return std::make_unique<Sum>(what, place);
    case Collective::Kind::bit_or:
      return std::make_unique<BitOr>(what, place);
    default:
      return std::make_unique<Delivery>(what, place);
  }
}

}  // namespace peel::detail
