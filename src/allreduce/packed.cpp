// packed: the indexes are ORed, then the values of the union are summed: two rounds.
//
// Values are summed in their own type. Where a transport cannot add that they are fixed-point numbers, and their
// scale is agreed as that of a sketch is (calibration.h): a round of vitals alone where magnitudes are not known yet.
#include <algorithm>

#include "allreduce/calibration.h"
#include "allreduce/course.h"
#include "allreduce/tagged_index.h"
#include "peel/items.h"

namespace peel::detail {

namespace {

class PackedCourse : public Course {
 public:
  void step(Chunk& chunk, Asks& asks) override {
    switch (stage_) {
      case Stage::begin:
        return knows(chunk) ? send_index(chunk, asks) : ask_vitals(chunk, asks);
      case Stage::calibrating:
        return calibrate(chunk, asks);
      case Stage::index_sent:
        return send_values(chunk, asks);
      case Stage::values_sent:
        return finish(chunk);
    }
  }

 private:
  enum class Stage : std::uint8_t { begin, calibrating, index_sent, values_sent };

  static bool knows(const Chunk& chunk) {
    return !has_scale(chunk.choice.plan) || (chunk.history.steps != 0 && chunk.history.has_magnitude != 0);
  }

  void ask_vitals(Chunk& chunk, Asks& asks) {
    index_.ask_vitals(chunk, asks);
    stage_ = Stage::calibrating;
  }

  void calibrate(Chunk& chunk, Asks& asks) {
    const Vitals seen = index_.take(chunk);
    if (!seen.finite) refuse_unfit(chunk, Unfit::not_finite);
    learn_magnitude(chunk, seen);
    plan_again(chunk);
    send_index(chunk, asks);
  }

  void send_index(Chunk& chunk, Asks& asks) {
    const Timed timed(chunk.report.encode_s, "peel encode packed");
    ChunkScratch& scratch = chunk.scratch;
    const Plan& plan = chunk.choice.plan;
    chunk.view.scan(plan, scratch.support, chunk.execution());
    // Without a scale nobody asks how large values are, or whether they are finite.
    const Vitals own = has_scale(plan) ? own_vitals(chunk) : Vitals{.items = scratch.support.items(), .magnitude = {}};
    if (own.finite) {
      encode_index(plan, scratch.support, scratch.message, chunk.execution());
    } else {  // nothing is sent but the word of it
      scratch.message = Message(plan);
    }
    index_.ask(chunk, own, asks);
    stage_ = Stage::index_sent;
  }

  void send_values(Chunk& chunk, Asks& asks) {
    const Timed timed(chunk.report.encode_s, "peel pack");
    ChunkScratch& scratch = chunk.scratch;
    seen_ = index_.take(chunk);
    if (has_scale(chunk.choice.plan)) {
      if (!seen_.finite) refuse_unfit(chunk, Unfit::not_finite);
      const bool overflowed = (scratch.message.flags() & kFlagOverflow) != 0;
      if (outdated_scale(chunk, seen_, overflowed)) {
        if (++attempts_ > 2) refuse_unfit(chunk, Unfit::out_of_range);
        report_rescale(chunk, overflowed);
        plan_again(chunk);
        return send_index(chunk, asks);
      }
    }
    encode_values(chunk.choice.plan, scratch.support, scratch.message, chunk.execution());
    ask_sum(scratch.collectives[0], chunk.choice.plan.payload_type(), scratch.message.payload, asks);
    stage_ = Stage::values_sent;
  }

  void finish(Chunk& chunk) {
    const Timed timed(chunk.report.decode_s, "peel decode packed");
    const Plan& plan = chunk.choice.plan;
    const Recovery recovery = chunk.view.decode(plan, chunk.scratch.message, {.execution = chunk.execution()});
    const bool native = plan.cells() == CellType::native;
    report_exactness(chunk.report, native ? Exactness::as_dense : Exactness::fixed_point);
    report_scale(chunk.report, plan);
    chunk.report.items += recovery.items;
    chunk.report.union_elements += recovery.items * plan.grain();
    chunk.history.learn(recovery.items, std::min(seen_.items, recovery.items));
    learn_grain(chunk);
  }

  static void plan_again(Chunk& chunk) {
    chunk.choice.plan = plan_for(Strategy::packed, chunk.options, chunk.world, chunk.shape, chunk.history);
  }

  Stage stage_ = Stage::begin;
  TaggedIndex index_;
  unsigned attempts_ = 0;
  Vitals seen_;
};

}  // namespace

std::unique_ptr<Course> make_packed() { return std::make_unique<PackedCourse>(); }

}  // namespace peel::detail
