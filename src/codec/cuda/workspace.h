// The memory of a call: how a workspace is cut, and how much there must be.
#pragma once

#include "codec/cuda/arena.h"
#include "codec/cuda/kernels.h"

namespace peel::cuda::detail {

void must(cudaError_t code);  // throws peel::Error

// How a sketch is made and peeled on the current device.
enum class SketchPath : std::uint8_t {
  none,     // packed
  chip,     // blocks are peeled in shared memory, out of a turned bitmap or from members that are dealt
  vectors,  // members are dealt, and values follow the order in which they peel
};

// Everything a verb may need. Arrays exist whether or not a plan uses them; those it does not use have no length.
struct Memory {
  std::uint64_t* zeroed = nullptr;
  std::uint64_t zeroed_words = 0;
  Counts own;
  Counts all;
  Counts kept;
  std::uint64_t* own_words = nullptr;
  std::uint64_t* all_words = nullptr;
  std::uint64_t* kept_words = nullptr;
  std::uint64_t* flag_copy = nullptr;
  ListScratch list;
  SparseScratch sparse;
  Dealt dealt;
  std::uint8_t* turned = nullptr;
  Kept kept_values;
  void* values = nullptr;
  std::uint64_t values_room = 0;  // in items
  void* vectors = nullptr;
  SketchPath path = SketchPath::none;
  // Dense views only; sparse ones are added in device memory, and dealt.
  bool sketches_turned = false;
  bool peels_turned = false;
};

// What must be zero lies together at the front, and one kernel clears it together with the status. For arrays alone it
// takes less.
enum class Views : std::uint8_t { both, dense };
Memory lay_out(const Plan& plan, std::uint64_t items, Views views, Arena& arena);
std::size_t workspace_bytes(const Plan& plan, std::uint64_t items, Views views);

// Most items that a payload of this plan can be asked to hold; and those a launch made room for.
std::uint64_t planned_items(const Plan& plan);
std::uint64_t room_items(const Plan& plan, const Launch& launch);

// Words that encoders take for the list of so many items, without a flag word.
std::uint64_t most_list_words(const Geometry& g, std::uint64_t items);

std::uint64_t row_words(const Geometry& g);  // of a bitmap, rounded up to whole rows of a Bloom filter

}  // namespace peel::cuda::detail
