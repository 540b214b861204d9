// Grid: one block, which looks at all statuses and then writes to all. There are as many as workers.
#include "allreduce/cuda/lengths.h"

namespace peel::cuda::detail {

namespace {

constexpr unsigned kThreadsEach = 256;

__global__ void __launch_bounds__(kThreadsEach)
    post(Status* leaving, unsigned workers, unsigned rank, Status* arrived) {
  bool lacks = false;
  for (unsigned w = threadIdx.x; w < workers; w += kThreadsEach) lacks |= (leaving[w].flags & kNoRoom) != 0;
  const bool any = __syncthreads_or(lacks) != 0;
  for (unsigned w = threadIdx.x; w < workers; w += kThreadsEach) {
    if (any) leaving[w].flags |= kSomeNoRoom;
    if (w == rank) arrived[w] = leaving[w];
  }
}

}  // namespace

cudaError_t post_lengths(Status* leaving, unsigned workers, unsigned rank, Status* arrived, cudaStream_t stream) {
  post<<<1, kThreadsEach, 0, stream>>>(leaving, workers, rank, arrived);
  return cudaGetLastError();
}

}  // namespace peel::cuda::detail
