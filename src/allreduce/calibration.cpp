#include "allreduce/calibration.h"

#include <algorithm>
#include <string>

#include "codec/engine.h"
#include "codec/values.h"
#include "peel/error.h"

namespace peel::detail {

namespace {

// Values a thousand times smaller than the scale was made for: with 4 workers 16 of 26 bits are left for the largest.
// As far as growth must be survived in one step, and rare enough for encoding once more.
constexpr std::int32_t kShrunk = 10;

// As the threads that scanned left the values: brought together, they would be packed by one thread.
Extremes extremes_of(ElementType type, Support& support) {
  const SupportData& data = support.data();
  Extremes all;
  for (const Segment& segment : data.segments) {
    const Extremes own = find_extremes(type, {segment.values, segment.items * data.item_bytes});
    if (!own.finite) return own;
    if (own.magnitude) all.magnitude = std::max(all.magnitude.value_or(*own.magnitude), *own.magnitude);
  }
  return all;
}

}  // namespace

bool has_scale(const Plan& plan) { return has_scale(plan.geometry()); }

// Values that a scale rounds to zero are no items of its plan. If that leaves none, they are looked at without a scale:
// else a gradient that shrinks far enough in one step would stay invisible in all later ones.
Vitals own_vitals(Chunk& chunk) {
  Support& support = chunk.scratch.support;
  Extremes extremes = extremes_of(chunk.view.type(), support);
  const std::uint64_t items = support.items();
  if (items == 0 && has_scale(chunk.choice.plan)) {
    const Plan native = plan_for(Strategy::split, chunk.options, chunk.world, chunk.shape, chunk.history);
    Support unscaled;
    chunk.view.scan(native, unscaled, chunk.execution());
    extremes = extremes_of(chunk.view.type(), unscaled);
  }
  return {.items = items, .magnitude = extremes.magnitude, .finite = extremes.finite};
}

void learn_magnitude(Chunk& chunk, const Vitals& seen) {
  chunk.history.learn_magnitude(seen.magnitude);
  if (chunk.history.has_magnitude == 0) {  // all values are zero: any scale will do
    chunk.history.has_magnitude = 1;
    chunk.history.magnitude = 0;
  }
}

bool outdated_scale(Chunk& chunk, const Vitals& seen, bool overflowed) {
  const bool shrunk =
      has_scale(chunk.choice.plan) && seen.magnitude && *seen.magnitude < chunk.history.magnitude - kShrunk;
  learn_magnitude(chunk, seen);
  return overflowed || shrunk;
}

void report_rescale(Chunk& chunk, bool overflowed) {
  ++chunk.report.rescaled;
  chunk.log(overflowed ? "Values outgrew the fixed-point scale; the chunk is encoded again with a smaller one."
                       : "Values fell far below the fixed-point scale; the chunk is encoded again with a larger one.");
}

void refuse_unfit(const Chunk& chunk, Unfit why) {
  const bool range = why == Unfit::out_of_range;
  throw Error(range ? ErrorCode::overflow : ErrorCode::not_finite,
              std::string("A worker has ") + (range ? "values that fit no fixed-point scale" : "NaN or infinity") +
                  " in \"" + chunk.options.name + "\", and this transport cannot add " +
                  std::string(name(chunk.view.type())) +
                  " as they are; parts of the array may be summed already, so skip the step, or use another "
                  "transport.");
}

}  // namespace peel::detail
