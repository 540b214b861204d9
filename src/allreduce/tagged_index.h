// What a chunk has ORed: the index of its message and, behind it, the vitals of the worker (vitals.h).
#pragma once

#include "allreduce/strategy_run.h"
#include "allreduce/vitals.h"

namespace peel::detail {

class TaggedIndex {
 public:
  // Puts vitals behind chunk.scratch.message.index, and requests the OR of both.
  void request_or(Chunk& chunk, const Vitals& own, Requests& requests);
  // The vitals alone, of items as they are without a scale: for a step that does not know how large values are.
  void request_summary(Chunk& chunk, Requests& requests);
  // Once it is complete: the vitals of all workers. The index is without them again.
  Vitals take(Chunk& chunk) const;

 private:
  [[nodiscard]] std::span<std::uint64_t, kVitalWords> vitals(ChunkScratch& scratch) const;

  std::size_t index_words_ = 0;
};

}  // namespace peel::detail
