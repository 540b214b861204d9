// gather on a device: everybody gets everybody's items and adds them. Lengths go first, since a receiver must know
// them.
#include <vector>

#include "allreduce/cuda/message_course.h"

namespace peel::cuda::detail {

namespace {

class GpuGather final : public MessageCourse {
 public:
  using MessageCourse::MessageCourse;

 protected:
  void advance(Chunk& chunk, Asks& asks) override {
    switch (stage_) {
      case Stage::begin:
        return send_lengths(chunk, asks);
      case Stage::lengths:
        return send_items(chunk, asks);
      case Stage::items:
        return add(chunk, asks);
      case Stage::adding:
        return finish(chunk, asks);
    }
  }

 private:
  enum class Stage : std::uint8_t { begin, lengths, items, adding };

  void send_lengths(Chunk& chunk, Asks& asks) {
    const auto timed = measured(chunk, &Report::encode_s, "peel encode gather");
    if (shares_.empty()) {
      const Shares all(chunk.choice.plan, 1);
      const Plan plan = all.plan(0, own_items(chunk));
      shares_.push_back({plan, all.stripes(0), roomy(chunk.history, plan, own_items(chunk))});
      outbox_.emplace(slot_of(chunk), stream());
      inbox_.emplace(slot_of(chunk));
    }
    const unsigned rank = chunk.world.rank;
    outbox_->encode(chunk.view.dense(), chunk.view.factor(), shares_, there().sent + rank);
    ask_lengths(chunk, asks, &Numbers::sent, 1);
    stage_ = Stage::lengths;
  }

  // What one worker has, where that is known.
  static std::uint64_t own_items(const Chunk& chunk) {
    return chunk.history.steps == 0 ? chunk.choice.plan.items() : chunk.history.own_items;
  }

  [[nodiscard]] std::vector<const Status*> sent(const Chunk& chunk) const {
    std::vector<const Status*> statuses;
    for (unsigned w = 0; w < chunk.world.size; ++w) statuses.push_back(here().sent + w);
    return statuses;
  }
  [[nodiscard]] Lying own_message(const Chunk& chunk) const {
    return outbox_->message(0, here().sent[chunk.world.rank]);
  }

  void send_items(Chunk& chunk, Asks& asks) {
    const unsigned workers = chunk.world.size;
    if (lack_room({here().sent, workers})) {
      if (widen(shares_, here().sent + chunk.world.rank)) return send_lengths(chunk, asks);
      ask_lengths(chunk, asks, &Numbers::sent, 1);
      return;
    }
    for (const Status* one : sent(chunk)) check_sent(shares_[0].plan, *one);
    const std::vector<const Plan*> plans(workers, &shares_[0].plan);
    gather_messages(chunk, asks, plans, sent(chunk), own_message(chunk));
    stage_ = Stage::items;
  }

  void add(Chunk& chunk, Asks& asks) {
    const auto timed = measured(chunk, &Report::decode_s, "peel decode gather");
    add_messages(chunk, shares_[0], sent(chunk), own_message(chunk), there().sums);
    Collective& settle = ask(chunk, Collective::Kind::settle, asks);
    fetch(settle, &Numbers::opened, chunk.world.size);
    fetch(settle, &Numbers::sums, 1);
    stage_ = Stage::adding;
  }

  void finish(Chunk& chunk, Asks& asks) {
    std::uint64_t added = 0;
    for (unsigned w = 0; w < chunk.world.size; ++w) {
      check_arrived(here().sent[w], here().opened[w]);
      added += here().sent[w].items;
    }
    finish_sums(chunk, asks, here().sums[0].items, added);
  }

  Stage stage_ = Stage::begin;
  std::vector<Outbox::Share> shares_;  // one: all
};

}  // namespace

std::unique_ptr<Course> make_gpu_gather(Gpu& gpu) { return std::make_unique<GpuGather>(gpu); }

}  // namespace peel::cuda::detail
