#include "transport/nccl/device_delivery.h"

#include "transport/nccl/calls.h"

namespace peel::detail {
namespace {

std::span<const std::byte> sent_to(unsigned worker, const Collective& what) {
  return what.send[what.kind == Collective::Kind::all_gather ? 0 : worker];
}

// An empty part is sent by nobody and awaited by nobody; a worker with nothing but such parts has nothing to do.
std::size_t pieces_of(const Collective& what, const Place& place) {
  for (unsigned w = 0; w < place.size; ++w) {
    if (w != place.rank && !(sent_to(w, what).empty() && what.into[w].empty())) return 1;
  }
  return 0;
}

}  // namespace

DeviceDelivery::DeviceDelivery(const Collective& what, const Place& place)
    : DeviceJob(place, pieces_of(what, place)), what_(what) {}

bool DeviceDelivery::issue(const Slot& /*slot*/, std::size_t /*piece*/, unsigned /*stage*/) {
  Group group(place().comm);
  for (unsigned w = 0; w < place().size; ++w) {
    if (w == place().rank) continue;
    const std::span<const std::byte> leaving = sent_to(w, what_);
    const std::span<std::byte> coming = what_.into[w];
    if (!leaving.empty()) group.send(leaving.data(), leaving.size(), w, place().stream);
    if (!coming.empty()) group.receive(coming.data(), coming.size(), w, place().stream);
  }
  group.end();
  return true;
}

}  // namespace peel::detail
