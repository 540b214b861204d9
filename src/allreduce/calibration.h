// The fixed-point scale of a chunk. It is chosen from the magnitudes of the last step, so that no round is spent on it,
// and checked by the vitals that travel with the index: what does not fit is encoded again, in the same call.
#pragma once

#include "allreduce/course.h"
#include "allreduce/vitals.h"

namespace peel::detail {

// Whether a plan's cells have a scale that must fit the values.
bool has_scale(const Plan& plan);

// The vitals of the items in chunk.slot.support, which was scanned with chunk.choice.plan.
Vitals own_vitals(Chunk& chunk);

void learn_magnitude(Chunk& chunk, const Vitals& seen);

// Learns magnitudes, and says whether the chunk has to be encoded again: a value outgrew the scale (`overflowed`), or
// all of them fell so far below it that too few of their bits are left. The same answer on every worker.
bool outdated_scale(Chunk& chunk, const Vitals& seen, bool overflowed);

// Thrown on every worker where a transport that adds integers only meets NaN or infinity.
[[noreturn]] void refuse_not_finite(const Chunk& chunk);

}  // namespace peel::detail
