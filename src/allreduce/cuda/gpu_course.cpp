#include "allreduce/cuda/gpu_course.h"

#include "peel/error.h"

namespace peel::cuda::detail {

void GpuCourse::step(Chunk& chunk, Asks& asks) {
  const CurrentDevice current(gpu_.ordinal());
  waits_ = false;
  if (!there_) {
    const std::size_t bytes = Numbers::bytes_for(chunk.world.size);
    std::byte* const words = slot_of(chunk).words.ensure(bytes);
    // Sums are added to, and whole arrays of numbers are fetched, also where not all were written.
    require(cudaMemsetAsync(words, 0, bytes, stream()), "cudaMemsetAsync");
    there_.emplace(words, chunk.world.size);
    here_.emplace(block_, chunk.world.size);
  }
  note_times(chunk);
  if (looks_) {
    const std::span<const std::uint64_t> counts(here().grains, kGrainCounts);
    return peel::detail::learn_grain(chunk, cuda::best_grain(counts, grain_options(chunk)));
  }
  advance(chunk, asks);
  waits_ = !asks.empty();
}

GpuCourse::Measured GpuCourse::measured(Chunk& chunk, double Report::*seconds, const char* name) {
  auto& intervals = slot_of(chunk).intervals;
  if (times_.size() == intervals.size()) intervals.push_back(std::make_unique<Interval>());
  times_.push_back(seconds);
  return {*intervals[times_.size() - 1], stream(), name};
}

// What was measured came before the collective that this step waited for.
void GpuCourse::note_times(Chunk& chunk) {
  for (std::size_t i = 0; i < times_.size(); ++i) chunk.report.*times_[i] += slot_of(chunk).intervals[i]->seconds();
  times_.clear();
}

Launch GpuCourse::launch(Chunk& chunk, const Plan& plan, std::uint64_t items) {
  const std::size_t bytes = room_for(plan, items).workspace_bytes;
  return {.stream = stream(),
          .workspace = slot_of(chunk).workspace.ensure(bytes),
          .workspace_bytes = bytes,
          .status = there().verb,
          .items = items};
}

Collective& GpuCourse::ask(Chunk& chunk, Collective::Kind kind, Asks& asks, std::size_t number) {
  Collective& one = chunk.scratch.collectives[number];
  peel::detail::forget(one);
  one.kind = kind;
  one.memory = Memory::device;
  asks.push_back(&one);
  return one;
}

Collective& GpuCourse::ask_or(Chunk& chunk, std::span<std::byte> words, Asks& asks) {
  Collective& one = ask(chunk, Collective::Kind::bit_or, asks);
  const std::size_t bytes = or_scratch_bytes(words.size(), chunk.world.size);
  one.data = words;
  one.scratch = {slot_of(chunk).scratch.ensure(bytes), bytes};
  return one;
}

void GpuCourse::count_sum(Chunk& chunk, Asks& asks) {
  count_grains(own(chunk), grain_options(chunk), there().grains, stream());
  fetch(ask(chunk, Collective::Kind::settle, asks), &Numbers::grains, kGrainCounts);
}

void GpuCourse::look_for_grain(Chunk& chunk, Asks& asks) {
  if (!wants_grain(chunk)) return;
  count_sum(chunk, asks);
  looks_ = true;
}

namespace {

[[noreturn]] void damaged() {
  throw Error(ErrorCode::corrupt_message,
              "Items from another worker arrived damaged; check that all workers run the same version, and the "
              "network.");
}

}  // namespace

void check_sent(const Plan& plan, const Status& sent) {
  if (sent.items > plan.items()) damaged();
  if (plan.elements() == 0) {
    if (sent.index_words != 0) damaged();
    return;
  }
  const std::uint64_t most = room_for(plan, sent.items).index_words;
  if (sent.index_words > most || (plan.index() != Index::list && sent.index_words != most)) damaged();
}

void check_arrived(const Status& sent, const Status& opened) {
  if (opened.flags != 0 || opened.items != sent.items) damaged();
}

}  // namespace peel::cuda::detail
