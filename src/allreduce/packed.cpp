// packed: the indexes are ORed, then the values of the union are summed: two rounds.
//
// Values are summed in their own type. Where a transport cannot add that they are fixed-point numbers, and their
// scale is agreed as that of a sketch is (calibration.h): a round of vitals alone where magnitudes are not known yet.
#include <algorithm>

#include "allreduce/calibration.h"
#include "allreduce/strategy_run.h"

namespace peel::detail {

namespace {

class PackedRun final : public StrategyRun {
 protected:
  void advance(Chunk& chunk, Requests& requests) override {
    switch (stage_) {
      case Stage::begin:
        return knows(chunk) ? send_index(chunk, requests) : summarize(chunk, requests);
      case Stage::calibrating:
        return calibrate(chunk, requests);
      case Stage::index_sent:
        return take_index(chunk, requests);
      case Stage::packing:
        return send_values(chunk, requests);
      case Stage::values_sent:
        return decode(chunk, requests);
      case Stage::decoding:
        return learn(chunk, requests);
    }
  }

 private:
  enum class Stage : std::uint8_t { begin, calibrating, index_sent, packing, values_sent, decoding };

  static bool knows(const Chunk& chunk) {
    return !has_scale(chunk.choice.plan) || (chunk.history.steps != 0 && chunk.history.has_magnitude != 0);
  }

  void summarize(Chunk& chunk, Requests& requests) {
    chunk.place->request_summary(chunk, requests);
    stage_ = Stage::calibrating;
  }

  void calibrate(Chunk& chunk, Requests& requests) {
    const Vitals seen = chunk.place->summary(chunk);
    if (!seen.finite) refuse_unfit(chunk, Unfit::not_finite);
    learn_magnitude(chunk, seen);
    plan_again(chunk);
    send_index(chunk, requests);
  }

  void send_index(Chunk& chunk, Requests& requests) {
    const auto timing = chunk.place->timing(chunk, &Report::encode_s, "peel encode packed");
    chunk.place->request_index(chunk, requests);
    stage_ = Stage::index_sent;
  }

  void take_index(Chunk& chunk, Requests& requests) {
    seen_ = chunk.place->summary(chunk);
    if (has_scale(chunk.choice.plan)) {
      if (!seen_.finite) refuse_unfit(chunk, Unfit::not_finite);
      const bool overflowed = chunk.place->overflowed(chunk);
      if (outdated_scale(chunk, seen_, overflowed)) {
        if (++attempts_ > 2) refuse_unfit(chunk, Unfit::out_of_range);
        report_rescale(chunk, overflowed);
        plan_again(chunk);
        return send_index(chunk, requests);
      }
    }
    pack(chunk, requests);
  }

  void pack(Chunk& chunk, Requests& requests) {
    const auto timing = chunk.place->timing(chunk, &Report::encode_s, "peel pack");
    chunk.place->encode_values(chunk);
    chunk.place->fence(chunk, requests);
    stage_ = Stage::packing;
  }

  void send_values(Chunk& chunk, Requests& requests) {
    const auto values = chunk.place->values(chunk);
    if (!values) return pack(chunk, requests);
    request_sum(chunk, chunk.choice.plan.payload_type(), *values, requests);
    stage_ = Stage::values_sent;
  }

  void decode(Chunk& chunk, Requests& requests) {
    const auto timing = chunk.place->timing(chunk, &Report::decode_s, "peel decode packed");
    chunk.place->decode(chunk);
    chunk.place->fence(chunk, requests);
    stage_ = Stage::decoding;
  }

  void learn(Chunk& chunk, Requests& requests) {
    const std::optional<Decoded> sum = chunk.place->decoded(chunk);
    if (!sum) return decode(chunk, requests);
    const Plan& plan = chunk.choice.plan;
    const bool native = plan.cells() == CellType::native;
    report_exactness(chunk.report, native ? Exactness::as_dense : Exactness::fixed_point);
    report_scale(chunk.report, plan);
    chunk.report.items += sum->items;
    chunk.report.union_elements += sum->items * plan.grain();
    chunk.history.learn(sum->items, std::min(seen_.items, sum->items));
    finish_with_grain(chunk, requests);
  }

  static void plan_again(Chunk& chunk) {
    chunk.choice.plan = plan_for(Strategy::packed, chunk.options, chunk.world, chunk.shape, chunk.history);
  }

  Stage stage_ = Stage::begin;
  unsigned attempts_ = 0;
  Vitals seen_;
};

}  // namespace

std::unique_ptr<StrategyRun> make_packed() { return std::make_unique<PackedRun>(); }

}  // namespace peel::detail
