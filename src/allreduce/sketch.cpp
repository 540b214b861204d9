// sketch: index and cells go out together, one round, and the sum is peeled. Four things can go wrong, each seen by
// every worker in what was combined, and mended in the same call:
//
//   values do not fit the scale       flag in the index, or vitals; redone with the scale that the vitals ask for
//   NaN or infinity                   flag in the vitals; redone as packed, which adds as a dense sum does
//   values that fit no scale          two other scales did not help; the same
//   items do not peel                 every worker derives the same list; their cells are summed as they are (repair)
//
// Without knowledge of sizes and magnitudes (the first step) a round of vitals alone comes first.
#include <algorithm>
#include <cstring>

#include "allreduce/calibration.h"
#include "allreduce/course.h"
#include "allreduce/sketch_rules.h"
#include "allreduce/tagged_index.h"
#include "codec/values.h"
#include "peel/items.h"

namespace peel::detail {

namespace {

class SketchCourse : public Course {
 public:
  void step(Chunk& chunk, Asks& asks) override {
    switch (stage_) {
      case Stage::begin:
        return knows_sketch(chunk) ? encode_message(chunk, asks) : ask_vitals(chunk, asks);
      case Stage::calibrating:
        return calibrate(chunk, asks);
      case Stage::sent:
        return check(chunk, asks);
      case Stage::repairing:
        return finish_repair(chunk);
      case Stage::replaced:
        return packed_->step(chunk, asks);
    }
  }

 private:
  enum class Stage : std::uint8_t { begin, calibrating, sent, repairing, replaced };

  void ask_vitals(Chunk& chunk, Asks& asks) {
    index_.ask_vitals(chunk, asks);
    stage_ = Stage::calibrating;
  }

  void calibrate(Chunk& chunk, Asks& asks) {
    const Vitals seen = index_.take(chunk);
    if (!seen.finite) return replace(chunk, asks, Unfit::not_finite);
    calibrate_sketch(chunk, seen);
    encode_message(chunk, asks);
  }

  void encode_message(Chunk& chunk, Asks& asks) {
    const Timed timed(chunk.report.encode_s, "peel encode sketch");
    ChunkScratch& scratch = chunk.scratch;
    const Plan& plan = chunk.choice.plan;
    chunk.view.scan(plan, scratch.support, chunk.execution());
    const Vitals own = own_vitals(chunk);
    if (own.finite) {
      encode(plan, scratch.support, scratch.message, chunk.execution());
    } else {  // nothing is sent but the word of it
      scratch.message = Message(plan);
    }
    index_.ask(chunk, own, asks);
    ask_sum(scratch.collectives[1], plan.payload_type(), scratch.message.payload, asks);
    stage_ = Stage::sent;
  }

  void check(Chunk& chunk, Asks& asks) {
    ChunkScratch& scratch = chunk.scratch;
    seen_ = index_.take(chunk);
    if (!seen_.finite) return replace(chunk, asks, Unfit::not_finite);
    const bool overflowed = (scratch.message.flags() & kFlagOverflow) != 0;
    if (outdated_scale(chunk, seen_, overflowed)) {
      if (++attempts_ > 2) return replace(chunk, asks, Unfit::out_of_range);
      report_rescale(chunk, overflowed);
      plan_sketch_again(chunk);
      return encode_message(chunk, asks);
    }
    decode_message(chunk, asks);
  }

  void decode_message(Chunk& chunk, Asks& asks) {
    const Timed timed(chunk.report.decode_s, "peel decode sketch");
    const Plan& plan = chunk.choice.plan;
    const bool estimate = chunk.estimates();
    const Dense x = chunk.view.dense();
    if (estimate && chunk.residual.size != 0) std::memcpy(chunk.residual.data, x.data, x.size * size_of(x.type));
    Recovery recovery = chunk.view.decode(plan, chunk.scratch.message,
                                          {.estimate = estimate, .list_lost = true, .execution = chunk.execution()});
    if (estimate) finish_estimates(chunk, recovery);
    report_sketch(chunk, recovery.items, recovery.lost, recovery.rounds);
    items_ = recovery.items;
    if (!estimate && recovery.lost != 0) {
      lost_ = std::move(recovery.lost_items);
      return ask_repair(chunk, asks);
    }
    learn(chunk);
  }

  // Lets the caller know what the sum lacks, where it asked for that.
  static void finish_estimates(Chunk& chunk, const Recovery& recovery) {
    const Plan& plan = chunk.choice.plan;
    const bool feeds_back = chunk.residual.size != 0;
    const double load = estimate_load(plan, recovery.items);
    const double trusted = feeds_back ? trusted_share(load) : 1;
    ChunkEnergy energy{.cells = cell_energy(plan, chunk.scratch.message.payload)};
    energy.values = energy.cells;
    if (recovery.lost != 0) chunk.view.measure(plan, recovery.lost_items, energy);
    chunk.energy.add(energy, load, trusted);
    if (!feeds_back) return;
    feed_back(plan, recovery.lost_items, trusted, chunk.options.average ? 1 : 1.0 / chunk.world.size,
              chunk.view.dense(), chunk.residual);
  }

  // Where items did not peel, x still holds this worker's own values.
  void ask_repair(Chunk& chunk, Asks& asks) {
    const Plan& plan = chunk.choice.plan;
    const std::uint64_t counters = lost_.size() * plan.grain();
    Buffer<std::byte>& own = chunk.scratch.values;
    own.resize(counters * size_of(plan.type()));
    chunk.view.take(plan, lost_, own.data());
    Buffer<std::byte>& cells = chunk.scratch.message.payload;
    cells.resize(counters * plan.cell_bytes());
    with_sketch_cell(plan.geometry(), [&](auto t, auto c) {
      using T = decltype(t);
      using Cell = decltype(c);
      const Scaling scaling(plan.geometry());
      bool fits = true;  // all of them did in the first place
      for (std::uint64_t i = 0; i < counters; ++i) {
        reinterpret_cast<Cell*>(cells.data())[i] =
            to_cell<Cell>(reinterpret_cast<const T*>(own.data())[i], scaling, fits);
      }
    });
    ask_sum(chunk.scratch.collectives[0], plan.payload_type(), cells, asks);
    report_repair(chunk, lost_.size());
    stage_ = Stage::repairing;
  }

  void finish_repair(Chunk& chunk) {
    const Timed timed(chunk.report.decode_s, "peel repair");
    const Plan& plan = chunk.choice.plan;
    const std::uint64_t counters = lost_.size() * plan.grain();
    Buffer<std::byte>& sums = chunk.scratch.values;
    with_sketch_cell(plan.geometry(), [&](auto t, auto c) {
      using T = decltype(t);
      using Cell = decltype(c);
      const Scaling scaling(plan.geometry());
      for (std::uint64_t i = 0; i < counters; ++i) {
        reinterpret_cast<T*>(sums.data())[i] =
            from_cell<T>(reinterpret_cast<const Cell*>(chunk.scratch.message.payload.data())[i], scaling);
      }
    });
    chunk.view.put(plan, lost_, sums.data());
    learn(chunk);
  }

  void replace(Chunk& chunk, Asks& asks, Unfit why) {
    if (!chunk.world.sums.has(chunk.view.type())) refuse_unfit(chunk, why);
    replace_by_packed(chunk, why);
    chunk.clear_residual();
    packed_ = make_packed();
    stage_ = Stage::replaced;
    packed_->step(chunk, asks);
  }

  void learn(Chunk& chunk) {
    chunk.history.learn(items_, std::min(seen_.items, items_));
    learn_grain(chunk);
  }

  Stage stage_ = Stage::begin;
  TaggedIndex index_;
  unsigned attempts_ = 0;
  Vitals seen_;
  std::uint64_t items_ = 0;
  std::vector<std::uint64_t> lost_;
  std::unique_ptr<Course> packed_;
};

}  // namespace

std::unique_ptr<Course> make_sketch() { return std::make_unique<SketchCourse>(); }

}  // namespace peel::detail
