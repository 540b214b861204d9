#include "peel/predict.h"

#include <algorithm>
#include <cmath>

#include "allreduce/choice.h"
#include "allreduce/layout.h"
#include "peel/error.h"

namespace peel {

namespace {

using namespace detail;

// What a state would remember of a chunk that has this share of the items.
ChunkHistory remembered(const PredictOptions& options, double share) {
  const auto part = [&](std::uint64_t items) {
    return static_cast<std::uint64_t>(std::llround(static_cast<double>(items) * share));
  };
  ChunkHistory history;
  history.steps = 1;
  history.grain = options.grain;
  history.items = part(options.items);
  history.own_items = std::min(history.items, part(options.own_items));
  history.has_magnitude = 1;
  return history;
}

Prediction predict_one(Strategy strategy, const PredictOptions& options, const World& world) {
  const StateOptions state{.grain = options.grain, .index = options.index, .cells = options.cells};
  Prediction result{.strategy = strategy,
                    .plan = plan_for(strategy, state, world, {.elements = options.elements, .type = options.type},
                                     remembered(options, 1))};
  result.latency_s = world.link.latency_s;  // of the opening
  double bytes = 0;
  for (const Share& chunk : cut_dense(state, options.elements, options.type).chunks) {
    const ChunkShape shape{.elements = chunk.end - chunk.begin, .type = options.type};
    const ChunkHistory history =
        remembered(options, static_cast<double>(shape.elements) / static_cast<double>(options.elements));
    const Expected expected = expect(strategy, plan_for(strategy, state, world, shape, history), world, shape, history);
    bytes += expected.bytes;
    result.rounds = expected.rounds;
    result.wire_s += expected.wire_s;
    result.latency_s += expected.latency_s;
    result.codec_s += expected.codec_s;
  }
  result.bytes_sent = static_cast<std::uint64_t>(bytes);
  result.total_s = result.wire_s + result.latency_s + result.codec_s;
  return result;
}

}  // namespace

std::vector<Prediction> predict(const PredictOptions& options) {
  const std::uint64_t most = (options.elements + options.grain - 1) / std::max(options.grain, 1U);
  if (options.workers == 0 || options.items > most || options.own_items > options.items) {
    throw Error(ErrorCode::invalid_argument,
                "A prediction needs a worker, no more items than the array has, and no more of one worker than of all "
                "together.");
  }
  const World world{.size = options.workers, .link = options.link};
  std::vector<Prediction> all;
  for (const Strategy strategy :
       {Strategy::dense, Strategy::split, Strategy::gather, Strategy::packed, Strategy::sketch}) {
    all.push_back(predict_one(strategy, options, world));
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Prediction& a, const Prediction& b) { return a.total_s < b.total_s; });
  return all;
}

}  // namespace peel
