#include "transport/nccl/delivery.h"

#include <algorithm>
#include <cstring>

#include "transport/nccl/calls.h"

namespace peel::detail {
namespace {

constexpr std::size_t kAligned = 16;  // where NCCL copies fastest
constexpr std::size_t kWord = sizeof(std::uint64_t);

std::size_t align(std::size_t bytes) noexcept { return (bytes + kAligned - 1) / kAligned * kAligned; }

}  // namespace

Delivery::Delivery(Collective& what, const NcclContext& context)
    : Job(context), what_(what), share_(kSlotBytes / (context.size * kAligned) * kAligned) {
  what.received.resize(context.size);
}

Job::Next Delivery::next() const noexcept {
  if (context().size == 1) return Next::nothing;
  if (begun == 0) return Next::piece;
  if (!lengths_known_) return Next::wait;
  return begun <= rounds_ ? Next::piece : Next::nothing;
}

std::span<const std::byte> Delivery::sent_to(unsigned worker) const noexcept {
  return what_.send[gathers() ? 0 : worker];
}

// How much of a buffer of this length goes in a round.
std::size_t Delivery::share_of(std::size_t length, std::size_t round) const noexcept {
  const std::size_t begin = round * share_;
  return begin < length ? std::min(share_, length - begin) : 0;
}

std::size_t Delivery::load(const StagingSlot& slot, std::size_t piece) {
  return piece == 0 ? load_lengths(slot) : load_round(slot, piece - 1);
}

bool Delivery::issue(const StagingSlot& slot, std::size_t piece, unsigned /*stage*/) {
  if (piece == 0) {
    send_lengths(slot);
  } else {
    send_round(slot, piece - 1);
  }
  return true;
}

std::size_t Delivery::result_bytes(std::size_t piece) const noexcept {
  if (piece == 0) return context().size * kWord;
  std::size_t bytes = 0;
  for (unsigned w = 0; w < context().size; ++w) {
    if (w != context().rank) bytes += align(share_of(what_.received[w].size(), piece - 1));
  }
  return bytes;
}

std::size_t Delivery::load_lengths(const StagingSlot& slot) {
  for (unsigned w = 0; w < context().size; ++w) {
    const std::uint64_t length = sent_to(w).size();
    std::memcpy(slot.host.near + w * kWord, &length, kWord);
  }
  return context().size * kWord;
}

// What this worker sends in a round, one buffer after another; a gathered one once. Returns how much that is.
std::size_t Delivery::load_round(const StagingSlot& slot, std::size_t round) {
  std::size_t end = 0;
  for (unsigned w = 0; w < context().size; ++w) {
    if (w == context().rank) continue;
    const std::size_t bytes = share_of(sent_to(w).size(), round);
    if (bytes != 0) std::memcpy(slot.host.near + end, sent_to(w).data() + round * share_, bytes);
    end += align(bytes);
    if (gathers()) break;
  }
  return end;
}

void Delivery::send_lengths(const StagingSlot& slot) {
  if (gathers()) {
    check(ncclAllGather(slot.device.near, slot.device.far, 1, ncclUint64, context().comm, context().stream),
          "ncclAllGather", context().comm);
    return;
  }
  Group group(context().comm);
  for (unsigned w = 0; w < context().size; ++w) {
    if (w == context().rank) continue;
    group.send(slot.device.near + w * kWord, kWord, w, context().stream);
    group.receive(slot.device.far + w * kWord, kWord, w, context().stream);
  }
  group.end();
}

void Delivery::send_round(const StagingSlot& slot, std::size_t round) {
  const std::byte* near = slot.device.near;
  std::byte* far = slot.device.far;
  Group group(context().comm);
  for (unsigned w = 0; w < context().size; ++w) {
    if (w == context().rank) continue;
    const std::size_t leaving = share_of(sent_to(w).size(), round);
    const std::size_t coming = share_of(what_.received[w].size(), round);
    if (leaving != 0) group.send(near, leaving, w, context().stream);
    if (coming != 0) group.receive(far, coming, w, context().stream);
    if (!gathers()) near += align(leaving);
    far += align(coming);
  }
  group.end();
}

void Delivery::finish(const StagingSlot& slot, std::size_t piece) {
  if (piece == 0) return take_lengths(slot);
  const std::size_t round = piece - 1;
  const std::byte* from = slot.host.far;
  for (unsigned w = 0; w < context().size; ++w) {
    if (w == context().rank) continue;
    const std::size_t bytes = share_of(what_.received[w].size(), round);
    if (bytes != 0) std::memcpy(what_.received[w].data() + round * share_, from, bytes);
    from += align(bytes);
  }
}

void Delivery::take_lengths(const StagingSlot& slot) {
  std::size_t longest = 0;
  for (unsigned w = 0; w < context().size; ++w) {
    if (w == context().rank) continue;
    std::uint64_t length = 0;
    std::memcpy(&length, slot.host.far + w * kWord, kWord);
    what_.received[w].resize(length);
    longest = std::max({longest, static_cast<std::size_t>(length), sent_to(w).size()});
  }
  rounds_ = (longest + share_ - 1) / share_;
  lengths_known_ = true;
}

}  // namespace peel::detail
