// Every collective over NCCL, on host and on device memory, with results known exactly; and how fast they are.
#pragma once

#include <cstddef>

#include "device_mirror.h"
#include "peel/communicator.h"

namespace peel::testing {

// For what any of these checks takes.
std::size_t mirror_bytes(unsigned workers);

void check_collectives(Communicator& communicator, Mirror& mirror);

void tell_speeds(Communicator& communicator, Mirror& mirror);

}  // namespace peel::testing
