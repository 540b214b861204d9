#include "transport/nccl/bit_or.h"

#include <algorithm>
#include <cstring>

#include "transport/nccl/calls.h"
#include "transport/nccl/or_words.h"
#include "transport/nccl/slices.h"

namespace peel::detail {
namespace {

// The most whose slices fit in a slot.
std::size_t longest_piece(unsigned workers) noexcept {
  const std::size_t unit = or_scratch_bytes(1, workers);
  return kSlotBytes / unit * unit;
}

}  // namespace

BitOr::BitOr(Collective& what, const NcclContext& context)
    : Job(context),
      data_(what.data),
      piece_bytes_(longest_piece(context.size)),
      pieces_((what.data.size() + piece_bytes_ - 1) / piece_bytes_) {}

std::span<std::byte> BitOr::part(std::size_t piece) const noexcept {
  const std::size_t begin = piece * piece_bytes_;
  return data_.subspan(begin, std::min(piece_bytes_, data_.size() - begin));
}

std::size_t BitOr::load(const StagingSlot& slot, std::size_t piece) {
  const std::span<const std::byte> mine = part(piece);
  std::memcpy(slot.host.near, mine.data(), mine.size());
  return mine.size();
}

bool BitOr::issue(const StagingSlot& slot, std::size_t piece, unsigned stage) {
  const std::size_t bytes = part(piece).size();
  return is_short(bytes, context().size) ? issue_whole(slot, bytes, stage) : issue_sliced(slot, bytes, stage);
}

bool BitOr::issue_whole(const StagingSlot& slot, std::size_t bytes, unsigned stage) {
  if (stage == 0) {
    gather(slot.device.near, slot.device.far, bytes, context());
    return false;
  }
  check(or_words({.into = slot.device.far,
                  .own = slot.device.far,
                  .parts = slot.device.far,
                  .bytes = bytes,
                  .stride = bytes,
                  .workers = context().size,
                  .except = 0},
                 context().stream),
        "The kernel or_words");
  return true;
}

bool BitOr::issue_sliced(const StagingSlot& slot, std::size_t bytes, unsigned stage) {
  const Slices slices(bytes, context().size);
  if (stage == 0) {
    trade(slices, slot.device.near, slot.device.far, context());
    return false;
  }
  std::byte* const own = slot.device.near + context().rank * slices.pitch();
  check(or_words({.into = own,
                  .own = own,
                  .parts = slot.device.far,
                  .bytes = slices.length(context().rank),
                  .stride = slices.pitch(),
                  .workers = context().size,
                  .except = context().rank},
                 context().stream),
        "The kernel or_words");
  gather(own, slot.device.far, slices.pitch(), context());
  return true;
}

void BitOr::finish(const StagingSlot& slot, std::size_t piece) {
  const std::span<std::byte> mine = part(piece);
  std::memcpy(mine.data(), slot.host.far, mine.size());
}

}  // namespace peel::detail
