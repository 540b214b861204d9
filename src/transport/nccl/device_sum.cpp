#include "transport/nccl/device_sum.h"

#include <algorithm>

#include "transport/nccl/calls.h"
#include "transport/nccl/widen.h"
#include "transport/nccl/wire_type.h"

namespace peel::detail {
namespace {

// Time-outs are for pieces, and an array of gigabytes on a slow link must not look as if it stood still: at 1 Gbps a
// ring takes some 4 s for this much. It is far more than NCCL needs to reach its bandwidth.
constexpr std::size_t kPieceBytes = std::size_t{256} << 20;

std::size_t piece_bytes(ElementType type) {
  return is_widened(type) ? kSlotBytes / wire_bytes(type) * size_of(type) : kPieceBytes;
}

std::size_t pieces_of(const Collective& what, const NcclContext& context) {
  if (context.size == 1) return 0;
  const std::size_t bytes = piece_bytes(what.type);
  return (what.data.size() + bytes - 1) / bytes;
}

}  // namespace

DeviceSum::DeviceSum(const Collective& what, const NcclContext& context)
    : DeviceJob(what, context, pieces_of(what, context)), data_(what.data), type_(what.type) {}

bool DeviceSum::move(const StagingSlot& slot, std::size_t piece, unsigned stage) {
  const std::size_t begin = piece * piece_bytes(type_);
  const std::span<std::byte> numbers = data_.subspan(begin, std::min(piece_bytes(type_), data_.size() - begin));
  if (is_widened(type_)) return issue_widened(slot.device.near, numbers, stage);
  add_up(numbers.data(), numbers.size() / size_of(type_));
  return true;
}

bool DeviceSum::issue_widened(std::byte* wide, std::span<std::byte> numbers, unsigned stage) {
  const std::size_t count = numbers.size() / size_of(type_);
  if (stage == 0) {
    check(widen_int16(numbers.data(), wide, count, context().stream), "The kernel widen_int16");
    add_up(wide, count);
    return false;
  }
  check(narrow_to_int16(wide, numbers.data(), count, context().stream), "The kernel narrow_to_int16");
  return true;
}

void DeviceSum::add_up(std::byte* numbers, std::size_t count) {
  check(ncclAllReduce(numbers, numbers, count, wire_type(type_), ncclSum, context().comm, context().stream),
        "ncclAllReduce", context().comm);
}

}  // namespace peel::detail
