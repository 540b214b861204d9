// Reduce-scatter: the run of one chunk, and which strategy it takes.
#pragma once

#include <memory>
#include <vector>

#include "allreduce/strategy_run.h"

namespace peel::detail {

// pieces[w]: the elements of x that this chunk has of worker w's share.
std::unique_ptr<StrategyRun> make_scatter(Dense x, std::vector<Share> pieces);

// Strategy::split or Strategy::dense, for the `elements` of all pieces.
Strategy choose_scatter(const StateOptions& options, const ChunkHistory& history, std::uint64_t elements,
                        std::size_t element_bytes);

}  // namespace peel::detail
