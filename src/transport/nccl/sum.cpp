#include "transport/nccl/sum.h"

#include <algorithm>
#include <cstring>

#include "transport/nccl/calls.h"
#include "transport/nccl/wire_type.h"

namespace peel::detail {
namespace {

template <typename To, typename From>
void convert(std::byte* to, const std::byte* from, std::size_t count) {
  To* const __restrict x = reinterpret_cast<To*>(to);
  const From* const __restrict y = reinterpret_cast<const From*>(from);
  for (std::size_t i = 0; i < count; ++i) x[i] = static_cast<To>(y[i]);
}

}  // namespace

Sum::Sum(Collective& what, const NcclContext& context)
    : Job(context),
      data_(what.data),
      type_(what.type),
      piece_bytes_(kSlotBytes / wire_bytes(what.type) * size_of(what.type)),
      pieces_((what.data.size() + piece_bytes_ - 1) / piece_bytes_) {}

std::span<std::byte> Sum::part(std::size_t piece) const noexcept {
  const std::size_t begin = piece * piece_bytes_;
  return data_.subspan(begin, std::min(piece_bytes_, data_.size() - begin));
}

std::size_t Sum::load(const StagingSlot& slot, std::size_t piece) {
  const std::span<const std::byte> mine = part(piece);
  if (is_widened(type_)) {
    convert<std::int32_t, std::int16_t>(slot.host.near, mine.data(), count(piece));
  } else {
    std::memcpy(slot.host.near, mine.data(), mine.size());
  }
  return result_bytes(piece);
}

bool Sum::issue(const StagingSlot& slot, std::size_t piece, unsigned /*stage*/) {
  check(ncclAllReduce(slot.device.near, slot.device.far, count(piece), wire_type(type_), ncclSum, context().comm,
                      context().stream),
        "ncclAllReduce", context().comm);
  return true;
}

std::size_t Sum::result_bytes(std::size_t piece) const noexcept { return count(piece) * wire_bytes(type_); }

void Sum::finish(const StagingSlot& slot, std::size_t piece) {
  const std::span<std::byte> mine = part(piece);
  if (is_widened(type_)) {
    convert<std::int16_t, std::int32_t>(mine.data(), slot.host.far, count(piece));
  } else {
    std::memcpy(mine.data(), slot.host.far, mine.size());
  }
}

}  // namespace peel::detail
