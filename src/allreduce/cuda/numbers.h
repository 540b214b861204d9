// The numbers of a chunk under way, on the device and, once fetched, in page-locked memory: the same layout on both.
#pragma once

#include <cstddef>
#include <cstdint>

#include "allreduce/cuda/add_sources.h"
#include "allreduce/vitals.h"
#include "codec/cuda/arena.h"
#include "peel/cuda.h"

namespace peel::cuda::detail {

struct Numbers {
  Status* leaving = nullptr;  // [w]: of what this worker sends worker w
  Status* sent = nullptr;     // [w]: of what worker w sends this one
  Status* sums = nullptr;     // [2 w], [2 w + 1]: of adding and of encoding the share of worker w
  Status* opened = nullptr;   // [w]: of reading what came from worker w
  Status* verb = nullptr;     // of the last verb
  AddedItems* sources = nullptr;
  std::uint64_t* vitals = nullptr;  // combined
  std::uint64_t* flags = nullptr;   // of a combined index
  std::uint64_t* grains = nullptr;
  double* energies = nullptr;  // of cells, of values and of lost values (allreduce/estimate.h)
  std::size_t bytes = 0;

  Numbers(std::byte* memory, unsigned workers) {
    Arena arena(memory);
    leaving = arena.take<Status>(workers);
    sent = arena.take<Status>(workers);
    sums = arena.take<Status>(std::uint64_t{2} * workers);
    opened = arena.take<Status>(workers);
    verb = arena.take<Status>(1);
    sources = arena.take<AddedItems>(workers);
    vitals = arena.take<std::uint64_t>(peel::detail::kVitalWords);
    flags = arena.take<std::uint64_t>(1);
    grains = arena.take<std::uint64_t>(kGrainCounts);
    energies = arena.take<double>(3);
    bytes = arena.used();
  }
  static std::size_t bytes_for(unsigned workers) { return Numbers(nullptr, workers).bytes; }
};

}  // namespace peel::cuda::detail
