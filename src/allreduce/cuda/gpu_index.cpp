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

void GpuIndex::write(const Numbers& there, ConstDense x, bool magnitudes, cudaStream_t stream) const {
  require(write_vitals(x.type, x.data, magnitudes ? x.size : 0, there.verb, there.flags, vitals(), stream),
          "Writing vitals");
}

std::span<std::byte> GpuIndex::bytes() const {
  return {reinterpret_cast<std::byte*>(index_), (words_ + kVitalWords) * sizeof(std::uint64_t)};
}

void GpuIndex::fetch(Collective& with, const Numbers& here) const {
  with.fetch.push_back({vitals(), here.vitals, kVitalWords * sizeof(std::uint64_t)});
  *here.flags = 0;
  if (words_ != 0) with.fetch.push_back({index_ + words_ - 1, here.flags, sizeof(std::uint64_t)});
}

peel::detail::Vitals GpuIndex::take(ElementType type, const Numbers& here) const {
  return peel::detail::read_vitals(type, std::span<const std::uint64_t, kVitalWords>(here.vitals, kVitalWords));
}

bool GpuIndex::overflowed(const Numbers& here) const { return (*here.flags & kFlagOverflow) != 0; }

}  // namespace peel::cuda::detail
