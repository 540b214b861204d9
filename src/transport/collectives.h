// The collectives of peel::Communicator over any transport that moves blocks between two workers.
#pragma once

#include <memory>

#include "peel/communicator.h"
#include "transport/point_to_point.h"

namespace peel::detail {

std::unique_ptr<Communicator> communicate_over(std::shared_ptr<PointToPoint> link);

}  // namespace peel::detail
