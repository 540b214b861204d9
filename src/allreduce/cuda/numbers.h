// The numbers of a chunk under way, on the device and, once fetched, in page-locked memory: the same layout on both.
#pragma once

#include <cstddef>
#include <cstdint>

#include "allreduce/choice.h"
#include "allreduce/cuda/add_sources.h"
#include "allreduce/cuda/headers.h"
#include "allreduce/vitals.h"
#include "codec/cuda/arena.h"
#include "peel/cuda.h"

namespace peel::cuda::detail {

struct Numbers {
  MessageHeader* leaving = nullptr;  // [w]: of the message to worker w
  MessageHeader* sent = nullptr;     // [w]: of the message from worker w
  MessageHeader* sums = nullptr;     // [w]: of the sums of worker w
  Status* encoded = nullptr;         // [m]: of encoding message m
  Status* added = nullptr;           // of adding the own share
  Status* opened = nullptr;          // [w]: of reading what came from worker w, or a piece of it
  Status* read = nullptr;            // [turn of 2][w]: of all pieces so far
  Status* verb = nullptr;            // of the last verb
  MessageFacts* facts = nullptr;     // [m]: of message m, sent to the device
  AddedItems* sources = nullptr;     // [piece][w]: the same
  std::uint64_t* vitals = nullptr;   // combined
  std::uint64_t* flags = nullptr;    // of a combined index
  std::uint64_t* grains = nullptr;
  double* energies = nullptr;  // of cells, of values and of lost values (allreduce/estimate.h)
  std::size_t bytes = 0;

  Numbers(std::byte* memory, unsigned workers) {
    Arena arena(memory);
    leaving = arena.take<MessageHeader>(workers);
    sent = arena.take<MessageHeader>(workers);
    sums = arena.take<MessageHeader>(workers);
    encoded = arena.take<Status>(workers);
    added = arena.take<Status>(1);
    opened = arena.take<Status>(workers);
    read = arena.take<Status>(std::uint64_t{2} * workers);
    verb = arena.take<Status>(1);
    facts = arena.take<MessageFacts>(workers);
    sources = arena.take<AddedItems>(std::uint64_t{peel::detail::kMostPieces} * workers);
    vitals = arena.take<std::uint64_t>(peel::detail::kVitalWords);
    flags = arena.take<std::uint64_t>(1);
    grains = arena.take<std::uint64_t>(kGrainCounts);
    energies = arena.take<double>(3);
    bytes = arena.used();
  }
  static std::size_t bytes_for(unsigned workers) { return Numbers(nullptr, workers).bytes; }
};

}  // namespace peel::cuda::detail
