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
#include <string>

#include "allreduce/calibration.h"
#include "allreduce/strategy_run.h"

namespace peel::detail {

namespace {

// Whether sizes and magnitudes are known, so that no round of vitals has to come first.
bool knows_sketch(const Chunk& chunk) {
  return chunk.history.steps != 0 && (chunk.history.has_magnitude != 0 || is_integer(chunk.view.type()));
}

void plan_sketch_again(Chunk& chunk) {
  chunk.choice.plan = plan_for(Strategy::sketch, chunk.options, chunk.world, chunk.shape, chunk.history);
}

// From the vitals of all workers, where they were not.
void calibrate_sketch(Chunk& chunk, const Vitals& seen) {
  learn_magnitude(chunk, seen);
  if (chunk.history.steps == 0) {
    chunk.history.items = std::min<std::uint64_t>(seen.items * chunk.world.size, chunk.choice.plan.items());
  }
  plan_sketch_again(chunk);
}

// Values cannot be fixed-point numbers: packed gives every worker what a dense sum gives.
void replace_by_packed(Chunk& chunk, Unfit why) {
  if (why == Unfit::not_finite) ++chunk.report.not_finite;
  chunk.log(why == Unfit::not_finite ? "A worker has NaN or infinity; the chunk is exchanged as packed."
                                     : "Values fit no fixed-point scale; the chunk is exchanged as packed.");
  StateOptions plain = chunk.options;
  plain.index = Index::bitmap;  // its size depends on nothing that was not agreed
  chunk.choice = {Strategy::packed, plan_for(Strategy::packed, plain, chunk.world, chunk.shape, chunk.history)};
}

void report_sketch(Chunk& chunk, const Decoded& sum) {
  const Plan& plan = chunk.choice.plan;
  const bool estimate = chunk.estimates();
  Report& report = chunk.report;
  // Sums of float cells lose bits to whatever shares a cell, and nobody can say how many.
  const bool bounded = plan.cells() != CellType::float32 && (!estimate || sum.lost == 0);
  report_exactness(report, bounded ? Exactness::fixed_point : Exactness::estimated);
  report_scale(report, plan);
  report.peel_rounds = std::max(report.peel_rounds, sum.rounds);
  report.items += sum.items;
  report.union_elements += sum.items * plan.grain();
  if (estimate) report.lost += sum.lost;
}

void report_repair(Chunk& chunk, std::uint64_t lost) {
  chunk.report.repaired += lost;
  chunk.log(std::to_string(lost) + " items did not peel and are exchanged again.");
}

class SketchRun final : public StrategyRun {
 protected:
  void advance(Chunk& chunk, Requests& requests) override {
    switch (stage_) {
      case Stage::begin:
        chunk.place->begin_sketch(chunk);
        return knows_sketch(chunk) ? encode(chunk, requests) : summarize(chunk, requests);
      case Stage::calibrating:
        return calibrate(chunk, requests);
      case Stage::sent:
        return check(chunk, requests);
      case Stage::decoding:
        return take_sum(chunk, requests);
      case Stage::estimating:
        chunk.energy.add(chunk.place->energy(chunk), load(chunk), trusted(chunk));
        return learn(chunk, requests);
      case Stage::repairing:
        return put_repaired(chunk, requests);
      case Stage::repaired:
        return learn(chunk, requests);
      case Stage::replaced:
        return step_packed(chunk, requests);
    }
  }

 private:
  enum class Stage : std::uint8_t { begin, calibrating, sent, decoding, estimating, repairing, repaired, replaced };

  void summarize(Chunk& chunk, Requests& requests) {
    chunk.place->request_summary(chunk, requests);
    stage_ = Stage::calibrating;
  }

  void calibrate(Chunk& chunk, Requests& requests) {
    const Vitals seen = chunk.place->summary(chunk);
    if (!seen.finite) return replace(chunk, requests, Unfit::not_finite);
    calibrate_sketch(chunk, seen);
    encode(chunk, requests);
  }

  void encode(Chunk& chunk, Requests& requests) {
    const auto timing = chunk.place->timing(chunk, &Report::encode_s, "peel encode sketch");
    chunk.place->request_sketch(chunk, requests);
    stage_ = Stage::sent;
  }

  void check(Chunk& chunk, Requests& requests) {
    seen_ = chunk.place->summary(chunk);
    if (!seen_.finite) return replace(chunk, requests, Unfit::not_finite);
    const bool overflowed = chunk.place->overflowed(chunk);
    if (outdated_scale(chunk, seen_, overflowed)) {
      if (++attempts_ > 2) return replace(chunk, requests, Unfit::out_of_range);
      report_rescale(chunk, overflowed);
      plan_sketch_again(chunk);
      return encode(chunk, requests);
    }
    decode(chunk, requests);
  }

  void decode(Chunk& chunk, Requests& requests) {
    const auto timing = chunk.place->timing(chunk, &Report::decode_s, "peel decode sketch");
    chunk.place->decode(chunk);
    chunk.place->fence(chunk, requests);
    stage_ = Stage::decoding;
  }

  void take_sum(Chunk& chunk, Requests& requests) {
    const std::optional<Decoded> sum = chunk.place->decoded(chunk);
    if (!sum) return decode(chunk, requests);
    sum_ = *sum;
    report_sketch(chunk, sum_);
    if (chunk.estimates()) return measure(chunk, requests);
    if (sum_.lost != 0) return repair(chunk, requests);
    learn(chunk, requests);
  }

  // Lets the caller know what the sum lacks, where it asked for that.
  void measure(Chunk& chunk, Requests& requests) {
    const auto timing = chunk.place->timing(chunk, &Report::decode_s, "peel estimate");
    chunk.place->measure_estimates(chunk, trusted(chunk));
    chunk.place->fence(chunk, requests);
    stage_ = Stage::estimating;
  }

  [[nodiscard]] double load(const Chunk& chunk) const { return estimate_load(chunk.choice.plan, sum_.items); }
  [[nodiscard]] double trusted(const Chunk& chunk) const {
    return chunk.residual.size != 0 ? trusted_share(load(chunk)) : 1;
  }

  // Where items did not peel, x still holds this worker's own values.
  void repair(Chunk& chunk, Requests& requests) {
    request_sum(chunk, chunk.choice.plan.payload_type(), chunk.place->take_lost(chunk), requests);
    report_repair(chunk, sum_.lost);
    stage_ = Stage::repairing;
  }

  void put_repaired(Chunk& chunk, Requests& requests) {
    const auto timing = chunk.place->timing(chunk, &Report::decode_s, "peel repair");
    chunk.place->put_lost(chunk);
    chunk.place->fence(chunk, requests);
    stage_ = Stage::repaired;
  }

  void replace(Chunk& chunk, Requests& requests, Unfit why) {
    if (!chunk.world.sums.has(chunk.view.type())) refuse_unfit(chunk, why);
    replace_by_packed(chunk, why);
    chunk.clear_residual();
    packed_ = make_packed();
    stage_ = Stage::replaced;
    step_packed(chunk, requests);
  }

  void step_packed(Chunk& chunk, Requests& requests) {
    packed_->step(chunk, requests);
    if (requests.empty()) finish();
  }

  void learn(Chunk& chunk, Requests& requests) {
    chunk.history.learn(sum_.items, std::min(seen_.items, sum_.items));
    finish_with_grain(chunk, requests);
  }

  Stage stage_ = Stage::begin;
  unsigned attempts_ = 0;
  Vitals seen_;
  Decoded sum_;
  std::unique_ptr<StrategyRun> packed_;
};

}  // namespace

std::unique_ptr<StrategyRun> make_sketch() { return std::make_unique<SketchRun>(); }

}  // namespace peel::detail
