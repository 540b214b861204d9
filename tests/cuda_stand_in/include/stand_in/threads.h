// What a thread of a kernel knows of itself, and where it meets others of its warp and its thread block.
//
// All kernels run on one thread of the processor, the device thread, and each thread of a thread block is a fiber of
// it. So these variables are plain ones: the scheduler (thread_block.cpp) sets them whenever another fiber goes on.
#pragma once

#include <cstdint>
#include <cstring>
#include <source_location>
#include <type_traits>

#include "vector_types.h"

extern uint3 threadIdx;
extern uint3 blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;
inline constexpr int warpSize = 32;

namespace stand_in {

using Where = std::source_location;

enum class Meeting : unsigned char {
  sync,
  shuffle,
  shuffle_up,
  shuffle_down,
  shuffle_xor,
  ballot,
  add,
  least,
  most,
  all_bits,
  any_bits,
  coalesce,
  block,
};

// Waits until all live lanes of `mask` have come with the same kind, and returns this lane's result.
std::uint64_t meet_lanes(Meeting kind, unsigned mask, std::uint64_t value, unsigned argument, unsigned width,
                         const Where& where);

struct BlockVote {
  unsigned any;
  unsigned all;
  unsigned count;
};
BlockVote meet_block(bool vote, const Where& where);

// The lanes of this warp that come here together: all that are not waiting elsewhere.
unsigned coalesce_lanes(const Where& where);

// Lets other threads of the block go on first, once in a while.
void maybe_pause();

void await_grid_ahead();

// A clock that moves on with each look at it, so that threads that wait for it do not wait for each other's turns.
std::uint64_t device_clock_ns();

// Shared memory holds garbage when a thread block begins: the first thread that comes to a variable fills it.
void begin_shared(void* variable, std::size_t bytes, std::uint64_t& block_seen);
void* dynamic_shared();

// Ends the kernel with a report: where, and why.
[[noreturn]] void refuse_thread(const char* why, const Where& where);

extern const char* running_kernel;

template <typename T>
std::uint64_t to_word(T value) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(std::uint64_t));
  std::uint64_t word = 0;
  std::memcpy(&word, &value, sizeof(T));
  return word;
}
template <typename T>
T from_word(std::uint64_t word) {
  T value;
  std::memcpy(&value, &word, sizeof(T));
  return value;
}

}  // namespace stand_in

// ---- the thread block

inline void __syncthreads(stand_in::Where where = stand_in::Where::current()) { stand_in::meet_block(false, where); }
inline int __syncthreads_or(int vote, stand_in::Where where = stand_in::Where::current()) {
  return static_cast<int>(stand_in::meet_block(vote != 0, where).any);
}
inline int __syncthreads_and(int vote, stand_in::Where where = stand_in::Where::current()) {
  return static_cast<int>(stand_in::meet_block(vote != 0, where).all);
}
inline int __syncthreads_count(int vote, stand_in::Where where = stand_in::Where::current()) {
  return static_cast<int>(stand_in::meet_block(vote != 0, where).count);
}
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
inline void cudaGridDependencySynchronize() { stand_in::await_grid_ahead(); }
inline void cudaTriggerProgrammaticLaunchCompletion() {}

// ---- the warp

inline void __syncwarp(unsigned mask = 0xFFFFFFFFu, stand_in::Where where = stand_in::Where::current()) {
  stand_in::meet_lanes(stand_in::Meeting::sync, mask, 0, 0, 32, where);
}
template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, stand_in::Where where = stand_in::Where::current()) {
  return stand_in::from_word<T>(stand_in::meet_lanes(stand_in::Meeting::shuffle, mask, stand_in::to_word(value),
                                                     static_cast<unsigned>(source), static_cast<unsigned>(width),
                                                     where));
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32,
                 stand_in::Where where = stand_in::Where::current()) {
  return stand_in::from_word<T>(stand_in::meet_lanes(stand_in::Meeting::shuffle_up, mask, stand_in::to_word(value), by,
                                                     static_cast<unsigned>(width), where));
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32,
                   stand_in::Where where = stand_in::Where::current()) {
  return stand_in::from_word<T>(stand_in::meet_lanes(stand_in::Meeting::shuffle_down, mask, stand_in::to_word(value),
                                                     by, static_cast<unsigned>(width), where));
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int by, int width = 32, stand_in::Where where = stand_in::Where::current()) {
  return stand_in::from_word<T>(stand_in::meet_lanes(stand_in::Meeting::shuffle_xor, mask, stand_in::to_word(value),
                                                     static_cast<unsigned>(by), static_cast<unsigned>(width), where));
}
inline unsigned __ballot_sync(unsigned mask, int vote, stand_in::Where where = stand_in::Where::current()) {
  return static_cast<unsigned>(stand_in::meet_lanes(stand_in::Meeting::ballot, mask, vote != 0, 0, 32, where));
}
inline int __any_sync(unsigned mask, int vote, stand_in::Where where = stand_in::Where::current()) {
  return static_cast<int>(stand_in::meet_lanes(stand_in::Meeting::any_bits, mask, vote != 0, 0, 32, where));
}
inline int __all_sync(unsigned mask, int vote, stand_in::Where where = stand_in::Where::current()) {
  return static_cast<int>(stand_in::meet_lanes(stand_in::Meeting::all_bits, mask, vote != 0, 0, 32, where));
}
inline unsigned __reduce_add_sync(unsigned mask, unsigned value, stand_in::Where where = stand_in::Where::current()) {
  return static_cast<unsigned>(stand_in::meet_lanes(stand_in::Meeting::add, mask, value, 0, 32, where));
}
inline unsigned __reduce_min_sync(unsigned mask, unsigned value, stand_in::Where where = stand_in::Where::current()) {
  return static_cast<unsigned>(stand_in::meet_lanes(stand_in::Meeting::least, mask, value, 0, 32, where));
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned value, stand_in::Where where = stand_in::Where::current()) {
  return static_cast<unsigned>(stand_in::meet_lanes(stand_in::Meeting::most, mask, value, 0, 32, where));
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned value, stand_in::Where where = stand_in::Where::current()) {
  return static_cast<unsigned>(stand_in::meet_lanes(stand_in::Meeting::any_bits, mask, value, 0, 32, where));
}
