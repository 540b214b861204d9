// sketch on a device: index and cells go out together, and the sum is peeled. What can go wrong is what can go wrong on
// the host (allreduce/sketch.cpp), and is mended in the same call.
#include <algorithm>
#include <cmath>

#include "allreduce/calibration.h"
#include "allreduce/cuda/estimate.h"
#include "allreduce/cuda/gpu_index.h"
#include "allreduce/cuda/multiply.h"
#include "allreduce/cuda/repair.h"
#include "allreduce/sketch_rules.h"
#include "codec/cuda/interpretation.h"
#include "plan/mapping.h"

namespace peel::cuda::detail {

namespace {

using peel::detail::Unfit;
using peel::detail::Vitals;

class GpuSketch final : public GpuCourse {
 public:
  explicit GpuSketch(Gpu& gpu) : GpuCourse(gpu), gpu_(gpu) {}

 protected:
  void advance(Chunk& chunk, Asks& asks) override {
    switch (stage_) {
      case Stage::begin:
        if (chunk.estimates()) keep_own(chunk);
        average(chunk);
        return knows_sketch(chunk) ? encode_message(chunk, asks) : ask_vitals(chunk, asks);
      case Stage::calibrating:
        return calibrate(chunk, asks);
      case Stage::sent:
        return check_sums(chunk, asks);
      case Stage::peeling:
        return take_sums(chunk, asks);
      case Stage::estimating:
        return note_estimates(chunk, asks);
      case Stage::repairing:
        return put_repaired(chunk, asks);
      case Stage::repaired:
        return learn(chunk, asks);
      case Stage::replaced:
        return packed_->step(chunk, asks);
    }
  }

 private:
  enum class Stage : std::uint8_t { begin, calibrating, sent, peeling, estimating, repairing, repaired, replaced };

  // The residual is made from it when it is known what was lost.
  void keep_own(Chunk& chunk) {
    const Dense x = chunk.view.dense();
    if (chunk.residual.size == 0) return;
    require(cudaMemcpyAsync(chunk.residual.data, x.data, x.size * size_of(x.type), cudaMemcpyDeviceToDevice, stream()),
            "cudaMemcpyAsync");
  }

  // In place: everything that follows reads x, several times if it has to.
  void average(Chunk& chunk) {
    const Dense x = chunk.view.dense();
    require(multiply(x.type, chunk.view.factor(), x.data, x.size, stream()), "Averaging");
  }

  void ask_vitals(Chunk& chunk, Asks& asks) {
    const Plan native = plan_for(Strategy::split, chunk.options, chunk.world, chunk.shape, chunk.history);
    const Room room = room_for(native, 0);
    GpuSlot& slot = slot_of(chunk);
    const Message index{.index = reinterpret_cast<std::uint64_t*>(slot.payload.ensure(room.index_words * 8)),
                        .index_words = room.index_words};
    auto* const support = reinterpret_cast<std::uint64_t*>(slot.support.ensure(room.support_words * 8));
    encode_index(native, own(chunk), support, index, launch(chunk, native, 0));
    (void)index_.make_room(slot, 0);
    index_.write(there(), own(chunk), /*magnitudes=*/true, stream());
    index_.fetch(ask_or(chunk, index_.bytes(), asks), here());
    stage_ = Stage::calibrating;
  }

  void calibrate(Chunk& chunk, Asks& asks) {
    const Vitals seen = index_.take(chunk.view.type(), here());
    if (!seen.finite) return replace(chunk, asks, Unfit::not_finite);
    calibrate_sketch(chunk, seen);
    encode_message(chunk, asks);
  }

  void encode_message(Chunk& chunk, Asks& asks) {
    const auto timed = measured(chunk, &Report::encode_s, "peel encode sketch");
    const Plan& plan = chunk.choice.plan;
    const Room room = room_for(plan);
    message_.index = index_.make_room(slot_of(chunk), room.index_words);
    message_.index_words = room.index_words;
    message_.payload = slot_of(chunk).payload.ensure(std::max<std::size_t>(room.payload_bytes, 1));
    message_.payload_bytes = room.payload_bytes;
    encode(plan, own(chunk), message_, launch(chunk, plan, room.items));
    index_.write(there(), own(chunk), /*magnitudes=*/true, stream());
    index_.fetch(ask_or(chunk, index_.bytes(), asks), here());
    Collective& sum = ask(chunk, Collective::Kind::sum, asks, 1);
    sum.type = plan.payload_type();
    sum.data = {message_.payload, message_.payload_bytes};
    stage_ = Stage::sent;
  }

  void check_sums(Chunk& chunk, Asks& asks) {
    seen_ = index_.take(chunk.view.type(), here());
    if (!seen_.finite) return replace(chunk, asks, Unfit::not_finite);
    const bool overflowed = index_.overflowed(here());
    if (outdated_scale(chunk, seen_, overflowed)) {
      if (++attempts_ > 2) return replace(chunk, asks, Unfit::out_of_range);
      report_rescale(chunk, overflowed);
      plan_sketch_again(chunk);
      return encode_message(chunk, asks);
    }
    // What is estimated is mostly known before: as many items as are too many.
    lost_room_ = std::max(kLostAtFirst, chunk.estimates() ? chunk.history.items + chunk.history.items / 16 : 0);
    room_ = room_for(chunk.choice.plan).items;
    decode_sums(chunk, asks);
  }

  static constexpr std::uint64_t kLostAtFirst = 65536;  // if there are more, sums are peeled again with room for them

  void decode_sums(Chunk& chunk, Asks& asks) {
    const auto timed = measured(chunk, &Report::decode_s, "peel decode sketch");
    const Plan& plan = chunk.choice.plan;
    const DecodeOptions options{
        .estimate = chunk.estimates(),
        .lost_items = reinterpret_cast<std::uint64_t*>(slot_of(chunk).arrived_index.ensure(2 * lost_room_ * 8)),
        .lost_room = lost_room_};
    decode(plan, message_, chunk.view.dense(), options, launch(chunk, plan, room_));
    fetch(ask(chunk, Collective::Kind::settle, asks), &Numbers::verb, 1);
    stage_ = Stage::peeling;
  }

  void take_sums(Chunk& chunk, Asks& asks) {
    const Plan& plan = chunk.choice.plan;
    const Status status = *here().verb;
    if ((status.flags & kNoRoom) != 0 && status.items > room_) {  // far more than were planned for; x is as it was
      room_ = status.items;
      return decode_sums(chunk, asks);
    }
    check(plan, status);
    if (status.lost > lost_room_) {
      lost_room_ = status.lost;
      return decode_sums(chunk, asks);
    }
    report_sketch(chunk, status.items, status.lost, status.rounds);
    items_ = status.items;
    if (chunk.estimates()) return finish_estimates(chunk, asks, status.lost);
    if (status.lost != 0) return ask_repair(chunk, asks, status.lost);
    learn(chunk, asks);
  }

  // As on the host (allreduce/sketch.cpp).
  void finish_estimates(Chunk& chunk, Asks& asks, std::uint64_t lost) {
    const Plan& plan = chunk.choice.plan;
    const Geometry& g = plan.geometry();
    GpuSlot& slot = slot_of(chunk);
    const Dense x = chunk.view.dense();
    const auto* const items = reinterpret_cast<const std::uint64_t*>(slot.arrived_index.data());
    double* const energies = there().energies;
    lost_ = lost;
    require(add_energy(plan.payload_type(), message_.payload, message_.payload_bytes / size_of(plan.payload_type()),
                       energies, stream()),
            "Adding up cells");
    require(add_energy(x.type, x.data, x.size, energies + 1, stream()), "Adding up values");
    require(add_item_energy(g, x.data, items, lost, energies + 2, stream()), "Adding up estimates");
    if (chunk.residual.size != 0) {
      require(
          feed_back(g, items, lost, trusted(chunk), chunk.options.average ? 1 : 1.0 / chunk.world.size, x.data,
                    chunk.residual.data,
                    slot.arrived_values.ensure(std::max<std::uint64_t>(lost * g.grain * size_of(x.type), 1)), stream()),
          "Feeding back");
    }
    fetch(ask(chunk, Collective::Kind::settle, asks), &Numbers::energies, 3);
    stage_ = Stage::estimating;
  }

  [[nodiscard]] double trusted(const Chunk& chunk) const {
    const double load = peel::detail::estimate_load(chunk.choice.plan, items_);
    return chunk.residual.size != 0 ? peel::detail::trusted_share(load) : 1;
  }

  void note_estimates(Chunk& chunk, Asks& asks) {
    const Plan& plan = chunk.choice.plan;
    const double* const seen = here().energies;
    const double down = peel::detail::has_scale(plan) ? std::ldexp(1.0, -plan.scale()) : 1;
    peel::detail::ChunkEnergy energy{.cells = seen[0] * down * down / peel::detail::kSubtables};
    energy.values = lost_ == 0 ? energy.cells : seen[1];
    energy.lost = seen[2];
    chunk.energy.add(energy, peel::detail::estimate_load(plan, items_), trusted(chunk));
    learn(chunk, asks);
  }

  // Where items did not peel, x still holds this worker's own values.
  void ask_repair(Chunk& chunk, Asks& asks, std::uint64_t lost) {
    const Plan& plan = chunk.choice.plan;
    GpuSlot& slot = slot_of(chunk);
    auto* const found = reinterpret_cast<std::uint64_t*>(slot.arrived_index.data());
    lost_items_ = found + lost_room_;
    lost_ = lost;
    const std::size_t scratch = sort_scratch_bytes(lost);
    require(sort_items(found, lost_items_, lost, slot.scratch.ensure(scratch), scratch, stream()), "Sorting items");
    const std::size_t bytes = lost * plan.grain() * plan.cell_bytes();
    std::byte* const cells = slot.arrived_values.ensure(bytes);
    require(take_cells(plan.geometry(), conversion_of(plan.geometry()), chunk.view.dense().data, lost_items_, lost,
                       cells, stream()),
            "Taking cells");
    Collective& sum = ask(chunk, Collective::Kind::sum, asks);
    sum.type = plan.payload_type();
    sum.data = {cells, bytes};
    report_repair(chunk, lost);
    stage_ = Stage::repairing;
  }

  void put_repaired(Chunk& chunk, Asks& asks) {
    const Geometry& g = chunk.choice.plan.geometry();
    require(put_cells(g, conversion_of(g), slot_of(chunk).arrived_values.data(), lost_items_, lost_,
                      chunk.view.dense().data, stream()),
            "Putting cells");
    (void)ask(chunk, Collective::Kind::settle, asks);
    stage_ = Stage::repaired;
  }

  void replace(Chunk& chunk, Asks& asks, Unfit why) {
    replace_by_packed(chunk, why);
    chunk.clear_residual();
    chunk.view = peel::detail::ChunkView(chunk.view.dense(), 1);  // it is averaged already
    packed_ = make_gpu_packed(gpu_);
    stage_ = Stage::replaced;
    packed_->step(chunk, asks);
  }

  void learn(Chunk& chunk, Asks& asks) {
    chunk.history.learn(items_, std::min(seen_.items, items_));
    look_for_grain(chunk, asks);
  }

  Gpu& gpu_;
  Stage stage_ = Stage::begin;
  GpuIndex index_;
  Message message_;
  unsigned attempts_ = 0;
  Vitals seen_;
  std::uint64_t items_ = 0;
  std::uint64_t lost_ = 0;
  std::uint64_t lost_room_ = 0;  // for the numbers of lost items
  std::uint64_t room_ = 0;       // for items of the union
  std::uint64_t* lost_items_ = nullptr;
  std::unique_ptr<Course> packed_;
};

}  // namespace

std::unique_ptr<Course> make_gpu_sketch(Gpu& gpu) { return std::make_unique<GpuSketch>(gpu); }

}  // namespace peel::cuda::detail
