// Kernels with one mistake each, which the stand-in must find; and the same without it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace stand_in::testing {

enum class Mistake { none, made };

// Lane 0 of a warp takes another way than the rest, and meets nobody there.
void diverge(Mistake mistake);

// Each thread reads what its neighbour wrote to shared memory; the mistake leaves out the barrier in between.
void turn_values(Mistake mistake, std::uint32_t* out);
void turn_lanes(Mistake mistake, std::uint32_t* out);

// Adds to shared memory, which the mistake does not clear before.
void count_threads(Mistake mistake, std::uint32_t* out);

// Waits for the grid ahead, or not.
void follow_grid(Mistake mistake, std::uint32_t* out);

// No mistake of its own: whoever looks too early makes one.
void write_word(std::uint32_t* out, std::uint32_t value, cudaStream_t stream);

}  // namespace stand_in::testing
