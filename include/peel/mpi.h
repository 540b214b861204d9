// The transport over MPI, in the library peelreduce_mpi.
#pragma once

#include <mpi.h>

#include <memory>

#include "peel/communicator.h"

namespace peel {

// Works on a duplicate of `communicator`, so its messages never meet the caller's; making and destroying it are
// collective. MPI must be initialised; calls from several threads need MPI_THREAD_MULTIPLE, and are refused without.
std::unique_ptr<Communicator> make_mpi(MPI_Comm communicator);

}  // namespace peel
