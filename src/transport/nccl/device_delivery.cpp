#include "transport/nccl/device_delivery.h"

#include "transport/nccl/calls.h"

namespace peel::detail {
namespace {

// What goes to a worker, and where it comes from one, piece by piece.
struct Parts {
  explicit Parts(const Collective& collective, const NcclContext& context)
      : what(collective), pieces(context.size == 1 ? 0 : collective.into.size() / context.size) {}
  [[nodiscard]] std::span<const std::byte> leaving(unsigned worker, std::size_t piece) const {
    return what.send[(what.kind == Collective::Kind::all_gather ? 0 : worker * pieces) + piece];
  }
  [[nodiscard]] std::span<std::byte> coming(unsigned worker, std::size_t piece) const {
    return what.into[worker * pieces + piece];
  }

  const Collective& what;
  std::size_t pieces;
};

// An empty piece is sent by nobody and awaited by nobody; a worker with nothing but such pieces has nothing to do.
std::size_t moves_of(const Collective& what, const NcclContext& context) {
  const Parts parts(what, context);
  for (unsigned w = 0; w < context.size; ++w) {
    for (std::size_t p = 0; p < parts.pieces; ++p) {
      if (w != context.rank && !(parts.leaving(w, p).empty() && parts.coming(w, p).empty())) return 1;
    }
  }
  return 0;
}

}  // namespace

DeviceDelivery::DeviceDelivery(const Collective& what, const NcclContext& context)
    : DeviceJob(what, context, moves_of(what, context)), what_(what) {}

bool DeviceDelivery::move(const StagingSlot& /*slot*/, std::size_t /*piece*/, unsigned /*stage*/) {
  Group group(context().comm);
  if (what_.even) {
    gather(group);
  } else if (what_.kind == Collective::Kind::all_gather) {
    broadcast(group);
  } else {
    deliver(group);
  }
  group.end();
  return true;
}

// All edges of NCCL's rings carry the same then, as in a dense sum.
void DeviceDelivery::gather(Group& group) const {
  const Parts parts(what_, context());
  for (std::size_t p = 0; p < parts.pieces; ++p) {
    const std::span<std::byte> first = parts.coming(0, p);
    if (!first.empty()) group.gather(first.data(), first.size(), context().rank, context().stream);
  }
}

// Everybody's pieces, one broadcast each: NCCL's rings carry more over sockets than sends and receives do. Gathering
// and splitting 2^27 float32 among four workers on one H200 was 3.3 and 1.8 times as fast as a dense sum at 30% and 70%
// so, and 3.2 and 1.25 times with sends.
void DeviceDelivery::broadcast(Group& group) const {
  const Parts parts(what_, context());
  for (unsigned w = 0; w < context().size; ++w) {
    for (std::size_t p = 0; p < parts.pieces; ++p) {
      if (w == context().rank) {
        const std::span<const std::byte> own = parts.leaving(w, p);
        if (!own.empty()) group.broadcast(own.data(), nullptr, own.size(), w, context().stream);
      } else {
        const std::span<std::byte> coming = parts.coming(w, p);
        if (!coming.empty()) group.broadcast(nullptr, coming.data(), coming.size(), w, context().stream);
      }
    }
  }
}

void DeviceDelivery::deliver(Group& group) const {
  const Parts parts(what_, context());
  for (unsigned w = 0; w < context().size; ++w) {
    if (w == context().rank) continue;
    for (std::size_t p = 0; p < parts.pieces; ++p) {
      const std::span<const std::byte> leaving = parts.leaving(w, p);
      const std::span<std::byte> coming = parts.coming(w, p);
      if (!leaving.empty()) group.send(leaving.data(), leaving.size(), w, context().stream);
      if (!coming.empty()) group.receive(coming.data(), coming.size(), w, context().stream);
    }
  }
}

}  // namespace peel::detail
