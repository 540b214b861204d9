// Grid: one block, which looks at all statuses and then writes all headers. There are as many as workers.
#include "allreduce/cuda/headers.h"

namespace peel::cuda::detail {

namespace {

constexpr unsigned kThreadsEach = 256;

__device__ MessageHeader header_of(const MessageFacts& facts, const Status& status, const Status* added) {
  MessageHeader header;
  header.items = status.items;
  header.workers = facts.workers;
  header.length = sizeof(MessageHeader);
  if (added != nullptr) header.count = added->recovered;
  if ((status.flags & kNoRoom) != 0) {
    header.flags = MessageHeader::kNoRoom;
    return header;
  }
  header.length += status.items * facts.item_bytes;
  if (status.items == facts.positions && status.items != 0) {
    header.index = MessageHeader::Index::all;
  } else if (status.items != 0) {
    header.index = facts.index;
    header.length += (status.index_words - 1) * sizeof(std::uint64_t);  // not the flag word, which is 0
  }
  return header;
}

__global__ void __launch_bounds__(kThreadsEach) write(const MessageFacts* facts, const Status* statuses,
                                                      unsigned messages, const Status* added, MessageHeader* headers) {
  bool lacks = false;
  for (unsigned m = threadIdx.x; m < messages; m += kThreadsEach) lacks |= (statuses[m].flags & kNoRoom) != 0;
  const bool any = __syncthreads_or(lacks) != 0;
  for (unsigned m = threadIdx.x; m < messages; m += kThreadsEach) {
    MessageHeader header = header_of(facts[m], statuses[m], added);
    if (any) header.flags |= MessageHeader::kSomeHasNoRoom;
    headers[m] = header;
  }
}

}  // namespace

cudaError_t write_headers(const MessageFacts* facts, const Status* statuses, unsigned messages, const Status* added,
                          MessageHeader* headers, cudaStream_t stream) {
  write<<<1, kThreadsEach, 0, stream>>>(facts, statuses, messages, added, headers);
  return cudaGetLastError();
}

}  // namespace peel::cuda::detail
