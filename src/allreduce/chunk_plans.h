// What each chunk of an array will do: where it is cut, and the strategy and plan of each piece.
#pragma once

#include <cstdint>
#include <vector>

#include "allreduce/choice.h"
#include "allreduce/history.h"
#include "allreduce/layout.h"
#include "allreduce/summed_array.h"

namespace peel::detail {

class ChunkPlans {
 public:
  ChunkPlans() = default;
  ChunkPlans(const StateOptions& options, const World& world, const SummedArray& array)
      : layout_(array.cut(options, world.size)) {}

  [[nodiscard]] const Layout& layout() const noexcept { return layout_; }
  [[nodiscard]] const std::vector<Choice>& choices() const noexcept { return choices_; }  // empty: not chosen yet
  [[nodiscard]] ChunkShape shape_of(const SummedArray& array, std::size_t chunk) const;
  [[nodiscard]] bool all_dense() const;
  // Whether a chunk writes before the opening is complete. It may be encoded while the opening is under way, which may
  // yet refuse it or plan it anew; so nothing may be written then. A dense run averages in place, and gains nothing
  // by an early start; on a device a sketch does so, too.
  [[nodiscard]] bool writes_at_once(const StateOptions& options, const SummedArray& array) const;

  // By what `state` remembers; where workers are told not to be clever (PEEL_DISABLE), by nothing. Throws peel::Error
  // for options that no plan can have.
  void choose(const StateData& state, const World& world, const SummedArray& array, bool disabled);
  void choose_dense(const StateData& state, const World& world, const SummedArray& array);

  // Of what was chosen, not of what it was chosen by: machines may differ in the last bit of a logarithm.
  [[nodiscard]] std::uint64_t fingerprint(const StateData& state) const;

 private:
  [[nodiscard]] Choice choose_for(std::size_t chunk, const StateData& state, const World& world,
                                  const SummedArray& array, bool disabled) const;

  Layout layout_;
  std::vector<Choice> choices_;
  std::vector<std::uint64_t> estimates_;  // bytes of each chunk, or none
};

}  // namespace peel::detail
