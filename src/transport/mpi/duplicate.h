// A duplicate of the caller's communicator, made without waiting for ever.
#pragma once

#include <mpi.h>

#include <chrono>

namespace peel::detail {

// Throws peel::Error (`transport`) unless `code` is MPI_SUCCESS.
void check(int code, const char* call);

// Collective. The duplicate returns errors instead of ending the process. Throws peel::Error: `timeout` if a worker
// does not call it in time, `invalid_argument` for a communicator between two groups.
MPI_Comm duplicate(MPI_Comm communicator, std::chrono::milliseconds timeout);

}  // namespace peel::detail
