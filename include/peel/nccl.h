// The transport over NCCL, in the library peelreduce_nccl. Arrays are in host memory; they pass through the GPU that
// the NCCL communicator lives on.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <memory>

#include "peel/communicator.h"

namespace peel {

// Works on `comm` and `stream`, which stay the caller's and must outlive it; nobody else may use `comm` meanwhile.
//
// Order. NCCL needs all collectives of a communicator in the same order on all workers, and that is the order in which
// they are started. So one exchange runs at a time: AsyncReducer lets its buckets take turns, and a collective of an
// older channel than the last one is refused. Threads that reduce at the same time need a communicator each.
//
// Waiting. A communicator made with ncclConfig_t::blocking = 0 never waits inside NCCL. One that blocks may, without a
// time-out, while it connects to a worker for the first time: make it so only where no worker can be missing.
//
// Errors. After `timeout` or `transport` NCCL's kernels may still wait on the GPU. Call ncclCommAbort, destroy this
// communicator and make new ones; its memory is kept for the rest of the process if the GPU could still write to it.
//
// Workers that share a GPU (NCCL 2.30, NCCL_MULTI_RANK_GPU_ENABLE=1) give their communicators ncclConfig_t::maxCTAs so
// small that the kernels of all fit on it at once. Those of one process make all communicators before the first
// collective: allocating memory may wait for kernels that wait for the worker that allocates.
std::unique_ptr<Communicator> make_nccl(ncclComm_t comm, cudaStream_t stream);

}  // namespace peel
