// dense: the array itself is summed, in place.
#include <algorithm>

#include "allreduce/strategy_run.h"

namespace peel::detail {

namespace {

// Notes a step whose sum nobody counts, and says whether its items shall be counted, where no grain is looked for.
bool note_dense_step(Chunk& chunk) {
  ChunkHistory& history = chunk.history;
  if (history.steps == 0) history.items = history.own_items = chunk.view.elements();
  ++history.steps;
  ++history.steady;
  return chunk.options.grain != 0 && (history.steps <= 2 || history.steady >= 32);
}

void learn_count(ChunkHistory& history, std::uint64_t items) {
  const double ratio = static_cast<double>(items) / static_cast<double>(std::max<std::uint64_t>(history.items, 1));
  history.own_items = std::min(items, static_cast<std::uint64_t>(static_cast<double>(history.own_items) * ratio));
  history.items = items;
  history.steady = 0;
}

class DenseRun final : public StrategyRun {
 protected:
  void advance(Chunk& chunk, Requests& requests) override {
    switch (stage_) {
      case Stage::begin:
        return sum(chunk, requests);
      case Stage::sent:
        return learn(chunk, requests);
      case Stage::counting:
        learn_count(chunk.history, chunk.place->counted_items(chunk));
        return finish_with_grain(chunk, requests);
    }
  }

 private:
  enum class Stage : std::uint8_t { begin, sent, counting };

  void sum(Chunk& chunk, Requests& requests) {
    const Dense x = chunk.view.dense();
    chunk.place->average(chunk);
    request_sum(chunk, x.type, {static_cast<std::byte*>(x.data), x.size * size_of(x.type)}, requests);
    stage_ = Stage::sent;
  }

  // The union of a dense sum is not counted at each step. When it was last looked at, it was about as dense. Where no
  // grain is looked for, items are counted now and then all the same: dense may have become too much.
  void learn(Chunk& chunk, Requests& requests) {
    report_exactness(chunk.report, Exactness::as_dense);
    chunk.report.union_elements += chunk.view.elements();
    chunk.report.items += chunk.view.elements();
    if (chunk.options.strategy == Strategy::dense) return finish();  // nobody will ask
    if (!note_dense_step(chunk)) return finish_with_grain(chunk, requests);
    chunk.place->count_items(chunk);
    chunk.place->fence(chunk, requests);
    stage_ = Stage::counting;
  }

  Stage stage_ = Stage::begin;
};

}  // namespace

std::unique_ptr<StrategyRun> make_dense() { return std::make_unique<DenseRun>(); }

}  // namespace peel::detail
