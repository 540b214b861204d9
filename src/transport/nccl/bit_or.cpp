#include "transport/nccl/bit_or.h"

#include <algorithm>
#include <cstring>

#include "transport/nccl/calls.h"
#include "transport/nccl/or_words.h"

namespace peel::detail {
namespace {

constexpr std::size_t kAligned = 16;  // what the kernel reads at once

// Up to this length a piece is sent whole. An exchange opens with an OR of a few words, where only latency counts: four
// workers on one H200 took 180 us for 4 KiB so, and 450 us for 16 KiB in slices.
constexpr std::size_t kShort = std::size_t{8} << 10;

std::size_t align(std::size_t bytes) noexcept { return (bytes + kAligned - 1) / kAligned * kAligned; }

std::size_t slice_of(std::size_t bytes, unsigned workers) noexcept { return align((bytes + workers - 1) / workers); }

// The most whose slices fit in a slot, and whose copies do where it is short.
std::size_t longest_piece(unsigned workers) noexcept { return kSlotBytes / (workers * kAligned) * workers * kAligned; }

bool is_short(std::size_t bytes, unsigned workers) noexcept {
  return bytes <= kShort && align(bytes) * workers <= kSlotBytes;
}

}  // namespace

BitOr::BitOr(Collective& what, const Place& place)
    : Job(place),
      data_(what.data),
      piece_bytes_(longest_piece(place.size)),
      pieces_((what.data.size() + piece_bytes_ - 1) / piece_bytes_) {}

std::span<std::byte> BitOr::part(std::size_t piece) const noexcept {
  const std::size_t begin = piece * piece_bytes_;
  return data_.subspan(begin, std::min(piece_bytes_, data_.size() - begin));
}

std::size_t BitOr::load(const Slot& slot, std::size_t piece) {
  const std::span<const std::byte> mine = part(piece);
  std::memcpy(slot.host.near, mine.data(), mine.size());
  return mine.size();
}

bool BitOr::issue(const Slot& slot, std::size_t piece, unsigned stage) {
  const std::size_t bytes = part(piece).size();
  if (is_short(bytes, place().size)) {
    if (stage == 0) {
      gather(slot.device.near, slot, align(bytes));
      return false;
    }
    check(or_words(slot.device.far, slot.device.far, align(bytes), place().size, 0, place().stream),
          "The kernel or_words");
    return true;
  }
  const std::size_t slice = slice_of(bytes, place().size);
  if (stage == 0) {
    exchange_slices(slot, slice);
    return false;
  }
  std::byte* const own = slot.device.near + place().rank * slice;
  check(or_words(own, slot.device.far, slice, place().size, place().rank, place().stream), "The kernel or_words");
  gather(own, slot, slice);
  return true;
}

void BitOr::gather(const std::byte* own, const Slot& slot, std::size_t bytes) {
  check(ncclAllGather(own, slot.device.far, bytes, ncclInt8, place().comm, place().stream), "ncclAllGather",
        place().comm);
}

void BitOr::exchange_slices(const Slot& slot, std::size_t slice) {
  Group group(place().comm);
  for (unsigned w = 0; w < place().size; ++w) {
    if (w == place().rank) continue;
    group.send(slot.device.near + w * slice, slice, w, place().stream);
    group.receive(slot.device.far + w * slice, slice, w, place().stream);
  }
  group.end();
}

void BitOr::finish(const Slot& slot, std::size_t piece) {
  const std::span<std::byte> mine = part(piece);
  std::memcpy(mine.data(), slot.host.far, mine.size());
}

}  // namespace peel::detail
