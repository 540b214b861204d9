// A transport between threads of one process: for tests, and to try things where there is no network.
#pragma once

#include <memory>
#include <vector>

#include "peel/communicator.h"

namespace peel {

struct InprocessOptions {
  // What the link of each worker carries in each direction, so that a sum takes the time that it would on such a
  // network; the workers themselves see to it. 0: no limit.
  double bytes_per_second = 0;
};

// A communicator for each of `workers` threads. They stay connected as long as one of them exists.
std::vector<std::unique_ptr<Communicator>> make_inprocess(unsigned workers, const InprocessOptions& options = {});

}  // namespace peel
