// The transport over NCCL, in the library peelreduce_nccl. Arrays are in host memory, and then pass through the GPU
// that the NCCL communicator lives on; or in the memory of that GPU (Collective::memory), and then go from there to the
// other workers without a copy. One exchange may use both.
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
// Device memory. Collectives on it happen on `stream`, after what was put there before they started; kernels put there
// once test() is true find the result. The host waits for nothing but asks an event. In a world of one a collective is
// complete at once, whatever is still on the stream. A time-out covers the kernels before it, too; a sum moves in
// pieces of 256 MiB, all else as a whole.
//
// Waiting. A communicator made with ncclConfig_t::blocking = 0 never waits inside NCCL. One that blocks may, without a
// time-out, while it connects to a worker for the first time: make it so only where no worker can be missing.
//
// Errors. After `timeout` or `transport` NCCL's kernels may still wait on the GPU. Call ncclCommAbort, destroy this
// communicator and make new ones; its memory is kept for the rest of the process if the GPU could still write to it.
// Device memory that a collective was given may be written to until ncclCommAbort has returned.
//
// peel::allreduce on arrays of the GPU works on `stream`, too; what it keeps from step to step comes from a pool of
// the communicator's own, on that stream.
//
// Workers that share a GPU (NCCL 2.30, NCCL_MULTI_RANK_GPU_ENABLE=1) give their communicators ncclConfig_t::maxCTAs so
// small that the kernels of all fit on it at once. Those of one process make all communicators before the first
// collective, and allocate device memory before it: allocating may wait for kernels that wait for the worker that
// allocates. They also set CUDA_MODULE_LOADING=EAGER, since a kernel that is loaded at its first use waits in the same
// way. Collectives themselves allocate nothing.
std::unique_ptr<Communicator> make_nccl(ncclComm_t comm, cudaStream_t stream);

}  // namespace peel
