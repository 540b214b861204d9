#include "allreduce/cuda/gpu_index.h"

#include "allreduce/cuda/vitals.h"
#include "peel/message.h"

namespace peel::cuda::detail {

using peel::detail::kVitalWords;

std::uint64_t* GpuIndex::make_room(GpuSlot& slot, std::uint64_t words) {
  index_ = reinterpret_cast<std::uint64_t*>(slot.index.ensure((words + kVitalWords) * sizeof(std::uint64_t)));
  words_ = words;
  return index_;
}

void GpuIndex::write(const Numbers& on_device, ConstDense x, bool magnitudes, cudaStream_t stream) const {
  require(write_vitals(x.type, x.data, magnitudes ? x.size : 0, on_device.verb, on_device.flags, vitals(), stream),
          "Writing vitals");
}

std::span<std::byte> GpuIndex::bytes() const {
  return {reinterpret_cast<std::byte*>(index_), (words_ + kVitalWords) * sizeof(std::uint64_t)};
}

void GpuIndex::fetch(Collective& with, const Numbers& on_host) const {
  with.fetch.push_back({vitals(), on_host.vitals, kVitalWords * sizeof(std::uint64_t)});
  *on_host.flags = 0;
  if (words_ != 0) with.fetch.push_back({index_ + words_ - 1, on_host.flags, sizeof(std::uint64_t)});
}

peel::detail::Vitals GpuIndex::take(ElementType type, const Numbers& on_host) const {
  return peel::detail::read_vitals(type, std::span<const std::uint64_t, kVitalWords>(on_host.vitals, kVitalWords));
}

bool GpuIndex::overflowed(const Numbers& on_host) const { return (*on_host.flags & kFlagOverflow) != 0; }

}  // namespace peel::cuda::detail
