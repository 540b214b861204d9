// gather: everybody gets everybody's items and adds them: one round.
#include "allreduce/strategy_run.h"

namespace peel::detail {

namespace {

class GatherRun final : public StrategyRun {
 protected:
  void advance(Chunk& chunk, Requests& requests) override {
    switch (stage_) {
      case Stage::begin:
        begin_items(chunk, requests, "peel encode gather");
        stage_ = Stage::lengths;
        return;
      case Stage::lengths:
        if (send_items(chunk, requests)) stage_ = Stage::items;
        return;
      case Stage::items:
        return add(chunk, requests);
      case Stage::adding:
        learn_items(chunk, chunk.place->item_counts(chunk));
        return finish_with_grain(chunk, requests);
    }
  }

 private:
  enum class Stage : std::uint8_t { begin, lengths, items, adding };

  void add(Chunk& chunk, Requests& requests) {
    const auto timing = chunk.place->timing(chunk, &Report::decode_s, "peel decode gather");
    chunk.place->add_items(chunk);
    chunk.place->fence(chunk, requests);
    stage_ = Stage::adding;
  }

  Stage stage_ = Stage::begin;
};

}  // namespace

std::unique_ptr<StrategyRun> make_gather() { return std::make_unique<GatherRun>(); }

}  // namespace peel::detail
