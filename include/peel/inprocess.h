// A transport between threads of one process: for tests, and to try things where there is no network.
#pragma once

#include <memory>
#include <vector>

#include "peel/communicator.h"

namespace peel {

// A communicator for each of `workers` threads. They stay connected as long as one of them exists.
std::vector<std::unique_ptr<Communicator>> make_inprocess(unsigned workers);

}  // namespace peel
