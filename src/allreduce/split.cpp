// split: each worker owns a share of the items. Items go to their owners, the owners add them, the sums go to all: two
// rounds, and the fewest bytes wherever supports overlap or workers are many.
#include "allreduce/strategy_run.h"

namespace peel::detail {

namespace {

class SplitRun final : public StrategyRun {
 protected:
  void advance(Chunk& chunk, Requests& requests) override {
    switch (stage_) {
      case Stage::begin:
        begin_items(chunk, requests, "peel encode split");
        stage_ = Stage::lengths;
        return;
      case Stage::lengths:
        if (send_items(chunk, requests)) stage_ = Stage::items;
        return;
      case Stage::items:
        return add(chunk, requests);
      case Stage::sum_lengths:
        return send_sums(chunk, requests);
      case Stage::sums:
        return write(chunk, requests);
      case Stage::writing:
        learn_items(chunk, chunk.place->item_counts(chunk));
        return finish_with_grain(chunk, requests);
    }
  }

 private:
  enum class Stage : std::uint8_t { begin, lengths, items, sum_lengths, sums, writing };

  void add(Chunk& chunk, Requests& requests) {
    const auto timing = chunk.place->timing(chunk, &Report::decode_s, "peel add split");
    chunk.place->add_items(chunk);
    chunk.place->encode_sums(chunk);
    chunk.place->request_sum_lengths(chunk, requests);
    stage_ = Stage::sum_lengths;
  }

  void send_sums(Chunk& chunk, Requests& requests) {
    if (!chunk.place->sums_fit(chunk, requests)) return;
    chunk.place->request_sums(chunk, requests);
    stage_ = Stage::sums;
  }

  void write(Chunk& chunk, Requests& requests) {
    const auto timing = chunk.place->timing(chunk, &Report::decode_s, "peel decode split");
    chunk.place->write_sums(chunk);
    chunk.place->fence(chunk, requests);
    stage_ = Stage::writing;
  }

  Stage stage_ = Stage::begin;
};

}  // namespace

std::unique_ptr<StrategyRun> make_split() { return std::make_unique<SplitRun>(); }

}  // namespace peel::detail
