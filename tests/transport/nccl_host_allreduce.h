// All-reduces of host memory over NCCL by every strategy, with sums known exactly.
#pragma once

#include "peel/communicator.h"

namespace peel::testing {

void check_host_allreduces(Communicator& communicator);

}  // namespace peel::testing
