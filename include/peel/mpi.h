// The transport over MPI, in the library peelreduce_mpi.
#pragma once

#include <mpi.h>

#include <chrono>
#include <memory>

#include "peel/communicator.h"

namespace peel {

struct MpiOptions {
  std::chrono::milliseconds timeout = std::chrono::seconds(60);  // for all workers to call make_mpi
};

// Works on a duplicate of `communicator`, so its messages never meet the caller's; making and destroying it are
// collective. Throws peel::Error: `timeout` if a worker does not call it in time, and says which one where MPI lets it
// know (among up to 64 workers); `communicator` is then not to be used any more, since the call cannot be taken back.
// MPI must be initialised; calls from several threads need MPI_THREAD_MULTIPLE, and are refused without.
//
// Errors. MPI cannot take a message back, so after `timeout` or `transport` some may still be under way. They lie in
// memory of the transport, a few MiB that are then kept for the rest of the process; the caller's arrays are free.
// MPI_Finalize may wait for a worker that is gone: end such a process with MPI_Abort.
std::unique_ptr<Communicator> make_mpi(MPI_Comm communicator, const MpiOptions& options = {});

}  // namespace peel
