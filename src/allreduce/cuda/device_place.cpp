#include "allreduce/cuda/device_place.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "allreduce/calibration.h"
#include "allreduce/cuda/estimate.h"
#include "allreduce/cuda/multiply.h"
#include "allreduce/cuda/repair.h"
#include "codec/cuda/interpretation.h"
#include "codec/cuda/workspace.h"
#include "codec/grain_windows.h"
#include "plan/mapping.h"

namespace peel::cuda::detail {

namespace {

class DeviceTiming final : public Timing {
 public:
  DeviceTiming(Interval& interval, cudaStream_t stream, const char* name)
      : Timing(name), interval_(interval), stream_(stream) {
    interval_.begin(stream_);
  }
  ~DeviceTiming() override { interval_.end(stream_); }

 private:
  Interval& interval_;
  cudaStream_t stream_;
};

constexpr std::uint64_t kLostAtFirst = 65536;  // if there are more, sums are peeled again with room for them

}  // namespace

void DevicePlace::step(peel::detail::StrategyRun& run, Chunk& chunk, Requests& requests) {
  const CurrentDevice current(gpu_.ordinal());
  waits_ = false;
  if (!on_device_) {
    const std::size_t bytes = Numbers::bytes_for(chunk.world.size);
    std::byte* const words = slot_of(chunk).words.ensure(bytes);
    // Sums are added to, and whole arrays of numbers are fetched, also where not all were written.
    require(cudaMemsetAsync(words, 0, bytes, stream()), "cudaMemsetAsync");
    on_device_.emplace(words, chunk.world.size);
    on_host_.emplace(block_, chunk.world.size);
  }
  note_times(chunk);
  run.step(chunk, requests);
  if (!fetches_.empty()) throw std::logic_error("A stage wants numbers of the device and did not fence.");
  waits_ = !requests.empty();
}

void DevicePlace::fence(Chunk& chunk, Requests& requests) {
  request(chunk, Collective::Kind::settle, requests).fetch = std::exchange(fetches_, {});
}

std::unique_ptr<Timing> DevicePlace::timing(Chunk& chunk, double Report::*seconds, const char* name) {
  auto& intervals = slot_of(chunk).intervals;
  if (times_.size() == intervals.size()) intervals.push_back(std::make_unique<Interval>());
  times_.push_back(seconds);
  return std::make_unique<DeviceTiming>(*intervals[times_.size() - 1], stream(), name);
}

// What was measured came before the collective that this step waited for.
void DevicePlace::note_times(Chunk& chunk) {
  for (std::size_t i = 0; i < times_.size(); ++i) chunk.report.*times_[i] += slot_of(chunk).intervals[i]->seconds();
  times_.clear();
}

Launch DevicePlace::launch(Chunk& chunk, const Plan& plan, std::uint64_t items) {
  const std::size_t bytes = workspace_bytes(plan, items, Views::dense);
  return {.stream = stream(),
          .workspace = slot_of(chunk).workspace.ensure(bytes),
          .workspace_bytes = bytes,
          .status = on_device().verb,
          .items = items};
}

// ---- the array

void DevicePlace::average(Chunk& chunk) {
  const Dense x = chunk.view.dense();
  require(multiply(x.type, chunk.view.factor(), x.data, x.size, stream()), "Averaging");
}

// The counts of all grains, of which one is wanted: as exact as it has to be for a choice.
std::uint64_t DevicePlace::counted_items(const Chunk& chunk) {
  const std::uint64_t windows = peel::detail::windows_of(chunk.view.elements());
  return peel::detail::scaled_up(on_host().grains[chunk.history.grain - 1 + chunk.history.phase],
                                 peel::detail::windows_taken(windows), windows);
}

void DevicePlace::count_grains(Chunk& chunk) {
  cuda::count_grains(own(chunk), grain_options(chunk), on_device().grains, stream());
  fetch(&Numbers::grains, kGrainCounts);
}

GrainChoice DevicePlace::best_grain(Chunk& chunk) {
  return cuda::best_grain(std::span<const std::uint64_t>(on_host().grains, kGrainCounts), grain_options(chunk));
}

// ---- messages that are combined

// Averages in place: everything that follows reads x, several times if it has to. The residual is made from what x was
// before, once it is known what was lost.
void DevicePlace::begin_sketch(Chunk& chunk) {
  const Dense x = chunk.view.dense();
  if (chunk.estimates() && chunk.residual.size != 0) {
    require(cudaMemcpyAsync(chunk.residual.data, x.data, x.size * size_of(x.type), cudaMemcpyDeviceToDevice, stream()),
            "cudaMemcpyAsync");
  }
  average(chunk);
  chunk.view = peel::detail::ChunkView(x, 1);
}

void DevicePlace::request_or(Chunk& chunk, Requests& requests) {
  Collective& one = request(chunk, Collective::Kind::bit_or, requests);
  one.data = index_.bytes();
  const std::size_t bytes = or_scratch_bytes(one.data.size(), chunk.world.size);
  one.scratch = {slot_of(chunk).scratch.ensure(bytes), bytes};
  index_.fetch(one, on_host());
}

void DevicePlace::request_summary(Chunk& chunk, Requests& requests) {
  const Plan native = plan_for(Strategy::split, chunk.options, chunk.world, chunk.shape, chunk.history);
  const Room room = room_for(native, 0);
  GpuSlot& slot = slot_of(chunk);
  const Message index{.index = reinterpret_cast<std::uint64_t*>(slot.payload.ensure(room.index_words * 8)),
                      .index_words = room.index_words};
  auto* const support = reinterpret_cast<std::uint64_t*>(slot.support.ensure(room.support_words * 8));
  encode_index(native, own(chunk), support, index, launch(chunk, native, 0));
  (void)index_.make_room(slot, 0);
  index_.write(on_device(), own(chunk), /*magnitudes=*/true, stream());
  request_or(chunk, requests);
}

// Values are native: arrays of a type that the transport cannot add are refused in device memory (validation.cpp), so
// there is no scale, and nobody asks how large values are.
void DevicePlace::request_index(Chunk& chunk, Requests& requests) {
  const Plan& plan = chunk.choice.plan;
  const Room room = room_for(plan, 0);
  message_ = {};
  message_.index = index_.make_room(slot_of(chunk), room.index_words);
  message_.index_words = room.index_words;
  std::byte* const support = slot_of(chunk).support.ensure(room.support_words * sizeof(std::uint64_t));
  encode_index(plan, own(chunk), reinterpret_cast<std::uint64_t*>(support), message_, launch(chunk, plan, 0));
  index_.write(on_device(), own(chunk), /*magnitudes=*/false, stream());
  request_or(chunk, requests);
  room_ = roomy(chunk.history, plan, chunk.history.items);
}

void DevicePlace::request_sketch(Chunk& chunk, Requests& requests) {
  const Plan& plan = chunk.choice.plan;
  const Room room = room_for(plan);
  message_.index = index_.make_room(slot_of(chunk), room.index_words);
  message_.index_words = room.index_words;
  message_.payload = slot_of(chunk).payload.ensure(std::max<std::size_t>(room.payload_bytes, 1));
  message_.payload_bytes = room.payload_bytes;
  encode(plan, own(chunk), message_, launch(chunk, plan, room.items));
  index_.write(on_device(), own(chunk), /*magnitudes=*/true, stream());
  request_or(chunk, requests);
  request_sum(chunk, plan.payload_type(), {message_.payload, message_.payload_bytes}, requests, 1);
  // What is estimated is mostly known before: as many items as are too many.
  lost_room_ = std::max(kLostAtFirst, chunk.estimates() ? chunk.history.items + chunk.history.items / 16 : 0);
  room_ = room.items;
}

Vitals DevicePlace::summary(Chunk& chunk) { return index_.take(chunk.view.type(), on_host()); }
bool DevicePlace::overflowed(const Chunk& /*chunk*/) const { return index_.overflowed(on_host()); }

void DevicePlace::encode_values(Chunk& chunk) {
  const Plan& plan = chunk.choice.plan;
  message_.payload_bytes = room_for(plan, room_).payload_bytes;
  message_.payload = slot_of(chunk).payload.ensure(std::max<std::size_t>(message_.payload_bytes, 1));
  const auto* support = reinterpret_cast<const std::uint64_t*>(slot_of(chunk).support.data());
  cuda::encode_values(plan, own(chunk), support, message_, launch(chunk, plan, room_));
  require(multiply_items(plan.type(), chunk.view.factor(), message_.payload, room_ * plan.grain(), plan.grain(),
                         on_device().verb, stream()),
          "Averaging");
  fetch(&Numbers::verb, 1);
}

std::optional<std::span<std::byte>> DevicePlace::values(Chunk& chunk) {
  const Plan& plan = chunk.choice.plan;
  const Status& packed = *on_host().verb;
  if ((packed.flags & kNoRoom) != 0) {
    room_ = packed.items;
    return std::nullopt;
  }
  check(plan, packed);
  return std::span(message_.payload, packed.items * plan.grain() * plan.cell_bytes());
}

void DevicePlace::decode(Chunk& chunk) {
  const Plan& plan = chunk.choice.plan;
  DecodeOptions options;
  if (chunk.choice.strategy == Strategy::sketch) {
    options = {.estimate = chunk.estimates(),
               .lost_items = reinterpret_cast<std::uint64_t*>(slot_of(chunk).arrived_index.ensure(2 * lost_room_ * 8)),
               .lost_room = lost_room_};
  }
  cuda::decode(plan, message_, chunk.view.dense(), options, launch(chunk, plan, room_));
  fetch(&Numbers::verb, 1);
}

std::optional<Decoded> DevicePlace::decoded(Chunk& chunk) {
  const Status& status = *on_host().verb;
  const bool sketch = chunk.choice.strategy == Strategy::sketch;
  // Far more items than were planned for. x is as it was.
  if (sketch && (status.flags & kNoRoom) != 0 && status.items > room_) {
    room_ = status.items;
    return std::nullopt;
  }
  check(chunk.choice.plan, status);
  if (sketch && status.lost > lost_room_) {
    lost_room_ = status.lost;
    return std::nullopt;
  }
  lost_ = status.lost;
  return Decoded{.items = status.items, .lost = status.lost, .rounds = status.rounds};
}

const std::uint64_t* DevicePlace::lost_items(Chunk& chunk) const {
  return reinterpret_cast<const std::uint64_t*>(slot_of(chunk).arrived_index.data());
}

void DevicePlace::measure_estimates(Chunk& chunk, double trusted) {
  const Plan& plan = chunk.choice.plan;
  const Geometry& g = plan.geometry();
  const Dense x = chunk.view.dense();
  const std::uint64_t* const items = lost_items(chunk);
  double* const energies = on_device().energies;
  require(add_energy(plan.payload_type(), message_.payload, message_.payload_bytes / size_of(plan.payload_type()),
                     energies, stream()),
          "Adding up cells");
  require(add_energy(x.type, x.data, x.size, energies + 1, stream()), "Adding up values");
  require(add_item_energy(g, x.data, items, lost_, energies + 2, stream()), "Adding up estimates");
  if (chunk.residual.size != 0) {
    std::byte* const scratch =
        slot_of(chunk).arrived_values.ensure(std::max<std::uint64_t>(lost_ * g.grain * size_of(x.type), 1));
    require(feed_back(g, items, lost_, trusted, chunk.options.average ? 1 : 1.0 / chunk.world.size, x.data,
                      chunk.residual.data, scratch, stream()),
            "Feeding back");
  }
  fetch(&Numbers::energies, 3);
}

ChunkEnergy DevicePlace::energy(const Chunk& chunk) {
  const Plan& plan = chunk.choice.plan;
  const double* const seen = on_host().energies;
  const double down = peel::detail::has_scale(plan) ? std::ldexp(1.0, -plan.scale()) : 1;
  const double cells = seen[0] * down * down / peel::detail::kSubtables;
  return {.cells = cells, .values = lost_ == 0 ? cells : seen[1], .lost = seen[2]};
}

std::span<std::byte> DevicePlace::take_lost(Chunk& chunk) {
  const Plan& plan = chunk.choice.plan;
  GpuSlot& slot = slot_of(chunk);
  const std::uint64_t* const found = lost_items(chunk);
  sorted_lost_ = reinterpret_cast<std::uint64_t*>(slot.arrived_index.data()) + lost_room_;
  const std::size_t scratch = sort_scratch_bytes(lost_);
  require(sort_items(found, sorted_lost_, lost_, slot.scratch.ensure(scratch), scratch, stream()), "Sorting items");
  const std::size_t bytes = lost_ * plan.grain() * plan.cell_bytes();
  std::byte* const cells = slot.arrived_values.ensure(bytes);
  require(take_cells(plan.geometry(), conversion_of(plan.geometry()), chunk.view.dense().data, sorted_lost_, lost_,
                     cells, stream()),
          "Taking cells");
  return {cells, bytes};
}

void DevicePlace::put_lost(Chunk& chunk) {
  const Geometry& g = chunk.choice.plan.geometry();
  require(put_cells(g, conversion_of(g), slot_of(chunk).arrived_values.data(), sorted_lost_, lost_,
                    chunk.view.dense().data, stream()),
          "Putting cells");
}

}  // namespace peel::cuda::detail
