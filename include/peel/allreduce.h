// The sum over all workers, in one call.
//
//   peel::State state;                                       // once per bucket
//   peel::Report report = peel::allreduce(comm, x, state);   // every step; x is the sum
//
// Device memory. Over a communicator that has a device (NCCL), x may be an array of that GPU:
//
//   peel::allreduce(comm, peel::Dense(pointer, n, peel::ElementType::float32, peel::Memory::device), state);
//
// Kernels come after what is on the communicator's stream already, and x is the sum when the call returns, whichever
// stream reads it; but a worker that is alone waits for nothing.
//
// Memory. What exchanges work in belongs to the communicator, on the host and on its device, and is kept for the next
// ones, whatever their states; Communicator::trim() frees it. A state is options and what was learned: it may be used
// with one communicator after another.
//
// Errors. Arguments that are wrong, or differ between workers, raise the same error on every worker before any data
// moves, and x is unchanged (unless it was asked not to look: StateOptions::unasked_steps). A worker that dies or
// stalls raises `timeout` or `transport` on the others within the time-out; x may then be partly summed, and the
// communicator is not to be used any more.
#pragma once

#include <future>
#include <memory>

#include "peel/communicator.h"
#include "peel/exchange.h"
#include "peel/gradient.h"
#include "peel/report.h"
#include "peel/state.h"

namespace peel {

Report allreduce(Communicator& communicator, Dense x, State& state);
// With estimates (StateOptions::estimate_bytes): `residual` gets what this worker's part of the sum missed (Exchange).
Report allreduce(Communicator& communicator, Dense x, Dense residual, State& state);

// A sparse gradient in, the sparse sum out. state.options() has .elements and .grain.
Report allreduce(Communicator& communicator, ConstSparse x, Sparse& sum, State& state);
Report allreduce(Communicator& communicator, Sparse& x, State& state);

// Worker w ends with the sum of share_of(x.size, W, w), in place; the rest of its array is unchanged.
Report reduce_scatter(Communicator& communicator, Dense x, State& state);

// Reduces several buckets at once: encode, wire and decode of one run beside those of the others. Every worker submits
// the same buckets in the same order; x, sum and state stay where they are until the future is ready. One thread drives
// them, so a transport must allow calls from it (MPI_THREAD_MULTIPLE). Over NCCL buckets take turns, and only the
// chunks of one run beside each other.
class AsyncReducer {
 public:
  explicit AsyncReducer(Communicator& communicator);
  ~AsyncReducer();  // waits for what was submitted, which ends by the time-out of its state at the latest

  [[nodiscard]] std::future<Report> allreduce(Dense x, State& state);
  [[nodiscard]] std::future<Report> allreduce(ConstSparse x, Sparse& sum, State& state);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace peel
