// What a worker says of the messages that it sends: each receiver gets the status of its own, and hears whether any of
// them had too little room. All must know that, since all say their lengths again then. So lengths grow with the
// workers; those of all messages at every worker would grow with their square.
#pragma once

#include "peel/cuda.h"

namespace peel::cuda::detail {

// In the flags of a status that is sent, beside those of verbs: some message of its sender had too little room.
inline constexpr std::uint32_t kSomeNoRoom = std::uint32_t{1} << 31;

// Sets kSomeNoRoom in all statuses of what goes to the workers if kNoRoom is in any; and the one for this worker itself
// arrives.
cudaError_t post_lengths(Status* leaving, unsigned workers, unsigned rank, Status* arrived, cudaStream_t stream);

}  // namespace peel::cuda::detail
