// The headers of item messages, written on the device from what the verbs report. They travel ahead of the messages,
// since a receiver must know how long one is. Each receiver gets the header of its own, which also says whether another
// message of that sender had too little room: all workers must know that, since all send their headers again then. So
// headers grow with the workers; those of all messages at every worker would grow with their square.
#pragma once

#include "codec/message_header.h"
#include "peel/cuda.h"

namespace peel::cuda::detail {

using peel::detail::MessageHeader;

// What the host knows of a message before it is encoded.
struct MessageFacts {
  std::uint64_t positions = 0;
  std::uint64_t item_bytes = 0;
  std::uint64_t workers = 0;
  MessageHeader::Index index = MessageHeader::Index::none;  // unless it has no item, or all
};

// headers[m] from facts[m] and statuses[m], of encoding message m; all of them in device memory. `added` is the status
// of adding the sums up, where the messages hold sums, else null.
cudaError_t write_headers(const MessageFacts* facts, const Status* statuses, unsigned messages, const Status* added,
                          MessageHeader* headers, cudaStream_t stream);

}  // namespace peel::cuda::detail
