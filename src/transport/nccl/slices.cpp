#include "transport/nccl/slices.h"

#include "transport/nccl/calls.h"

namespace peel::detail {

void trade(const Slices& slices, const std::byte* near, std::byte* far, const Place& place) {
  Group group(place.comm);
  const std::size_t coming = slices.length(place.rank);
  for (unsigned w = 0; w < place.size; ++w) {
    if (w == place.rank) continue;
    const std::size_t leaving = slices.length(w);
    if (leaving != 0) group.send(near + slices.begin(w), leaving, w, place.stream);
    if (coming != 0) group.receive(far + w * slices.pitch(), coming, w, place.stream);
  }
  group.end();
}

void gather(const std::byte* own, std::byte* all, std::size_t bytes, const Place& place) {
  check(ncclAllGather(own, all, bytes, ncclInt8, place.comm, place.stream), "ncclAllGather", place.comm);
}

}  // namespace peel::detail
