// The fixed-point scale of a chunk. It is chosen from the magnitudes of the last step, so that no round is spent on it,
// and checked by the vitals that travel with the index: what does not fit is encoded again, in the same call.
#pragma once

#include "allreduce/strategy_run.h"
#include "allreduce/vitals.h"

namespace peel::detail {

// Whether a plan's cells have a scale that must fit the values.
bool has_scale(const Plan& plan);

// The vitals of the items in chunk.scratch.support, which was scanned with chunk.choice.plan.
Vitals own_vitals(Chunk& chunk);

void learn_magnitude(Chunk& chunk, const Vitals& seen);

// Learns magnitudes, and says whether the scale does not fit: a value outgrew it (`overflowed`), or all of them fell so
// far below it that too few of their bits are left. The same answer on every worker.
bool outdated_scale(Chunk& chunk, const Vitals& seen, bool overflowed);

// The chunk is encoded again with a scale that fits.
void report_rescale(Chunk& chunk, bool overflowed);

// Why values cannot be fixed-point numbers.
enum class Unfit : std::uint8_t {
  not_finite,    // NaN or infinity somewhere
  out_of_range,  // they fit no scale: doubles beyond 2^900, or integers that are wider than the cells
};

// Thrown on every worker where a transport that cannot add the array's own type meets such values.
[[noreturn]] void refuse_unfit(const Chunk& chunk, Unfit why);

}  // namespace peel::detail
