#include "allreduce/chunk_plans.h"

#include <algorithm>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "allreduce/estimate.h"
#include "allreduce/scatter.h"

namespace peel::detail {

ChunkShape ChunkPlans::shape_of(const SummedArray& array, std::size_t chunk) const {
  ChunkShape shape{.elements = layout_.chunks[chunk].end - layout_.chunks[chunk].begin,
                   .type = array.type(),
                   .sparse = array.sparse(),
                   .memory = array.memory()};
  if (!estimates_.empty()) shape.estimate_bytes = estimates_[chunk];
  return shape;
}

bool ChunkPlans::all_dense() const {
  return std::all_of(choices_.begin(), choices_.end(),
                     [](const Choice& choice) { return choice.strategy == Strategy::dense; });
}

bool ChunkPlans::writes_at_once(const StateOptions& options, const SummedArray& array) const {
  if (array.scattered() || choices_.empty()) return false;
  const Strategy first = choices_[0].strategy;
  return first == Strategy::dense || (first == Strategy::sketch && array.on_device() && options.average);
}

void ChunkPlans::choose(const StateData& state, const World& world, const SummedArray& array, bool disabled) {
  choices_.clear();
  // Once for all chunks: while they run, what is remembered of them changes.
  estimates_.clear();
  const std::uint64_t bytes = state.options.estimate_bytes;
  if (bytes != 0) estimates_ = share_estimate(bytes, layout_, state.chunks);
  for (std::size_t c = 0; c < layout_.chunks.size(); ++c) {
    choices_.push_back(choose_for(c, state, world, array, disabled));
  }
}

Choice ChunkPlans::choose_for(std::size_t chunk, const StateData& state, const World& world, const SummedArray& array,
                              bool disabled) const {
  const ChunkShape shape = shape_of(array, chunk);
  const ChunkHistory& history = state.chunks[chunk];
  if (disabled) return plain_choice(state.options, world, shape, history);
  if (array.scattered()) {
    return {choose_scatter(state.options, history, shape.elements * world.size, size_of(array.type())),
            plan_for(Strategy::dense, state.options, world, shape, {})};
  }
  Choice choice = peel::detail::choose(state.options, world, shape, history);
  choice.likely_bytes = likely_bytes(choice, world, history);
  return choice;
}

void ChunkPlans::choose_dense(const StateData& state, const World& world, const SummedArray& array) {
  for (std::size_t c = 0; c < layout_.chunks.size(); ++c) {
    choices_.push_back(
        {Strategy::dense, plan_for(Strategy::dense, state.options, world, shape_of(array, c), state.chunks[c])});
  }
}

std::uint64_t ChunkPlans::fingerprint(const StateData& state) const {
  std::vector<std::uint64_t> words;
  for (const Choice& choice : choices_) {
    words.push_back(static_cast<std::uint64_t>(choice.strategy));
    words.push_back(choice.plan.fingerprint());
    words.insert(words.end(), choice.likely_bytes.begin(), choice.likely_bytes.end());
  }
  for (const ChunkHistory& history : state.chunks) {
    words.push_back(history.steps == 0 ? 0 : 1);
    words.push_back(history.has_magnitude);
  }
  return XXH3_64bits(words.data(), words.size() * sizeof(std::uint64_t));
}

}  // namespace peel::detail
