// What sketches do alike on the host and on a device: what they must know, how they plan, what takes their place and
// what they report.
#pragma once

#include <cstdint>

#include "allreduce/calibration.h"
#include "allreduce/strategy_run.h"
#include "allreduce/vitals.h"

namespace peel::detail {

// Whether sizes and magnitudes are known, so that no round of vitals has to come first.
bool knows_sketch(const Chunk& chunk);

// From the vitals of all workers, where they were not; the plan that follows from them.
void calibrate_sketch(Chunk& chunk, const Vitals& seen);
void plan_sketch_again(Chunk& chunk);

// Values cannot be fixed-point numbers: packed gives every worker what a dense sum gives.
void replace_by_packed(Chunk& chunk, Unfit why);

// What was peeled: items of the union, and how many of them were lost.
void report_sketch(Chunk& chunk, std::uint64_t items, std::uint64_t lost, std::uint32_t rounds);

// Lost items are exchanged again.
void report_repair(Chunk& chunk, std::uint64_t lost);

}  // namespace peel::detail
