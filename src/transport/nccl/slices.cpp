#include "transport/nccl/slices.h"

#include "transport/nccl/calls.h"

namespace peel::detail {

void trade(const Slices& slices, const std::byte* near, std::byte* far, const NcclContext& context) {
  Group group(context.comm);
  const std::size_t coming = slices.length(context.rank);
  for (unsigned w = 0; w < context.size; ++w) {
    if (w == context.rank) continue;
    const std::size_t leaving = slices.length(w);
    if (leaving != 0) group.send(near + slices.begin(w), leaving, w, context.stream);
    if (coming != 0) group.receive(far + w * slices.pitch(), coming, w, context.stream);
  }
  group.end();
}

void gather(const std::byte* own, std::byte* all, std::size_t bytes, const NcclContext& context) {
  check(ncclAllGather(own, all, bytes, ncclInt8, context.comm, context.stream), "ncclAllGather", context.comm);
}

}  // namespace peel::detail
