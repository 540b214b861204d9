// The runs of a reduce-scatter. Chunk c holds the c-th piece of every worker's share; worker w's piece goes to w,
// which adds what it gets in rank order. `split` sends items, `dense` the elements themselves: one round either way.
#include "allreduce/scatter.h"

#include <algorithm>

#include "allreduce/average.h"
#include "items/add_items.h"
#include "items/item_message.h"
#include "peel/error.h"
#include "peel/items.h"

namespace peel::detail {

namespace {

class ScatterRun final : public StrategyRun {
 public:
  ScatterRun(Dense x, std::vector<Share> pieces) : x_(x), pieces_(std::move(pieces)) {}

 protected:
  void advance(Chunk& chunk, Requests& requests) override {
    const bool items = chunk.choice.strategy == Strategy::split;
    if (!sent_) {
      items ? send_items(chunk, requests) : send_elements(chunk, requests);
      sent_ = true;
    } else {
      items ? add_received_items(chunk) : add_received_elements(chunk);
      finish();
    }
  }

 private:
  [[nodiscard]] std::byte* at(const Share& piece) const {
    return static_cast<std::byte*>(x_.data) + piece.begin * size_of(x_.type);
  }
  [[nodiscard]] std::size_t bytes_of(const Share& piece) const { return (piece.end - piece.begin) * size_of(x_.type); }
  [[nodiscard]] Dense array_of(const Share& piece) const { return {at(piece), piece.end - piece.begin, x_.type}; }

  // Grains start at multiples of the grain in the whole array, wherever the piece begins.
  [[nodiscard]] Plan plan_of(const Chunk& chunk, const Share& piece) const {
    const std::uint32_t grain = std::max(chunk.options.grain, 1u);
    return Plan::make({.elements = piece.end - piece.begin,
                       .type = x_.type,
                       .workers = chunk.world.size,
                       .grain = grain,
                       .phase = static_cast<std::uint32_t>((grain - piece.begin % grain) % grain),
                       .index = Index::bitmap});
  }
  Collective& all_to_all(Chunk& chunk, Requests& requests) {
    Collective& move = request(chunk, Collective::Kind::all_to_all, requests);
    move.send.assign(chunk.world.size, {});
    return move;
  }

  void send_items(Chunk& chunk, Requests& requests) {
    const auto timing = chunk.place->timing(chunk, &Report::encode_s, "peel encode scatter");
    ChunkScratch& scratch = chunk.scratch;
    for (unsigned w = 0; w < chunk.world.size; ++w) {
      const Plan plan = plan_of(chunk, pieces_[w]);
      const Dense piece = array_of(pieces_[w]);
      scan(plan, ConstDense(piece.data, piece.size, piece.type), scratch.support, chunk.execution());
      multiply(x_.type, chunk.view.factor(), scratch.support);
      own_items_ += scratch.support.items();
      pack_items(chunk.engine(), item_message_shape(plan),
                 {.words = scratch.support.words(),
                  .values = scratch.support.values().data(),
                  .items = scratch.support.items()},
                 scratch.list, scratch.messages[w]);
    }
    Collective& move = all_to_all(chunk, requests);
    for (unsigned w = 0; w < chunk.world.size; ++w) {
      set_message_count(own_items_, scratch.messages[w]);
      if (w != chunk.world.rank) move.send[w] = scratch.messages[w];
    }
  }

  void add_received_items(Chunk& chunk) {
    const auto timing = chunk.place->timing(chunk, &Report::decode_s, "peel add scatter");
    ChunkScratch& scratch = chunk.scratch;
    const unsigned rank = chunk.world.rank;
    const Plan plan = plan_of(chunk, pieces_[rank]);
    std::vector<ItemView> views(chunk.world.size);
    std::uint64_t everybodys = 0;
    for (unsigned w = 0; w < chunk.world.size; ++w) {
      const std::span<const std::byte> message =
          w == rank ? std::span<const std::byte>(scratch.messages[w]) : scratch.collectives[0].received[w];
      views[w] = open_items_as_sent(chunk.engine(), item_message_shape(plan), message, scratch.shares[w]);
      everybodys += views[w].count;
    }
    const std::uint64_t items = unite_items(chunk.engine(), plan.items(), views, scratch.words);
    scratch.values.resize(items * item_message_shape(plan).item_bytes);
    add_items(chunk.engine(), plan.type(), plan.grain(), views, scratch.words, scratch.values.data());
    expand(plan, scratch.words, scratch.values.data(), array_of(pieces_[rank]), chunk.execution());
    chunk.report.items += items;
    chunk.report.union_elements += items * plan.grain();
    learn(chunk, everybodys / chunk.world.size);
  }

  void send_elements(Chunk& chunk, Requests& requests) {
    const auto timing = chunk.place->timing(chunk, &Report::encode_s, "peel encode scatter");
    Collective& move = all_to_all(chunk, requests);
    for (unsigned w = 0; w < chunk.world.size; ++w) {
      const std::span<const std::byte> piece = piece_to_add(chunk, w);
      (w == chunk.world.rank ? own_ : move.send[w]) = piece;
    }
    move.likely_bytes = bytes_of(pieces_[0]);  // none is longer
  }

  // Where values are averaged, in a copy: the array itself stays as it is.
  [[nodiscard]] std::span<const std::byte> piece_to_add(Chunk& chunk, unsigned w) const {
    const std::span<const std::byte> piece(at(pieces_[w]), bytes_of(pieces_[w]));
    if (chunk.view.factor() == 1) return piece;
    Buffer<std::byte>& copy = chunk.scratch.messages[w];
    copy.resize(piece.size());
    multiply(x_.type, chunk.view.factor(), piece, copy.data());
    return copy;
  }

  void add_received_elements(Chunk& chunk) {
    const auto timing = chunk.place->timing(chunk, &Report::decode_s, "peel add scatter");
    const Share& mine = pieces_[chunk.world.rank];
    std::vector<const std::byte*> parts(chunk.world.size);
    for (unsigned w = 0; w < chunk.world.size; ++w) {
      const Buffer<std::byte>& received = chunk.scratch.collectives[0].received[w];
      if (w != chunk.world.rank && received.size() != bytes_of(mine)) {
        throw Error(ErrorCode::corrupt_message, "Worker " + std::to_string(w) +
                                                    " sent a share of another length; check that all workers run the "
                                                    "same version.");
      }
      parts[w] = w == chunk.world.rank ? own_.data() : received.data();
    }
    add_arrays(x_.type, parts, mine.end - mine.begin, at(mine));
    chunk.report.items += mine.end - mine.begin;
    chunk.report.union_elements += mine.end - mine.begin;
    learn(chunk, chunk.history.own_items);
  }

  // Nobody sees the whole sum, so the union is not known; what decides is how many items a worker has to send.
  static void learn(Chunk& chunk, std::uint64_t own_items) {
    report_exactness(chunk.report, Exactness::rounded_once);
    chunk.history.learn(own_items, own_items);
  }

  Dense x_;
  std::vector<Share> pieces_;
  std::span<const std::byte> own_;  // this worker's part of what it adds
  std::uint64_t own_items_ = 0;
  bool sent_ = false;
};

}  // namespace

std::unique_ptr<StrategyRun> make_scatter(Dense x, std::vector<Share> pieces) {
  return std::make_unique<ScatterRun>(x, std::move(pieces));
}

// Sending elements tells nothing about how many are zero, so items are tried again now and then.
Strategy choose_scatter(const StateOptions& options, const ChunkHistory& history, std::uint64_t elements,
                        std::size_t element_bytes) {
  constexpr std::uint64_t kTryAgain = 16;
  if (options.strategy != Strategy::automatic) return options.strategy;
  if (history.steps % kTryAgain == 0) return Strategy::split;
  const double grain = std::max(options.grain, 1u);
  const double items = item_message_bytes(static_cast<double>(elements) / grain, static_cast<double>(history.own_items),
                                          grain * static_cast<double>(element_bytes));
  return items < 0.9 * static_cast<double>(elements * element_bytes) ? Strategy::split : Strategy::dense;
}

}  // namespace peel::detail
