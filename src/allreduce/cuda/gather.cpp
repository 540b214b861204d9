// gather on a device: everybody gets everybody's items and adds them. Lengths go first, since a receiver must know
// them.
#include <algorithm>
#include <vector>

#include "allreduce/cuda/gpu_course.h"
#include "allreduce/cuda/messages.h"

namespace peel::cuda::detail {

namespace {

class GpuGather final : public GpuCourse {
 public:
  using GpuCourse::GpuCourse;

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
      shares_.push_back({plan, all.stripes(0), roomy(chunk.memory, plan, own_items(chunk))});
      outbox_.emplace(slot_of(chunk), stream());
    }
    const unsigned rank = chunk.world.rank;
    outbox_->encode(chunk.view.dense(), chunk.view.factor(), shares_, there().sent + rank);
    ask_lengths(chunk, asks);
  }

  void ask_lengths(Chunk& chunk, Asks& asks) {
    Collective& lengths = ask(chunk, Collective::Kind::all_gather, asks);
    const auto status_of = [&](unsigned w) {
      return std::span(reinterpret_cast<std::byte*>(there().sent + w), sizeof(Status));
    };
    lengths.send.assign(1, status_of(chunk.world.rank));
    for (unsigned w = 0; w < chunk.world.size; ++w) lengths.into.push_back(status_of(w));
    fetch(lengths, &Numbers::sent, chunk.world.size);
    stage_ = Stage::lengths;
  }

  // What one worker has, where that is known.
  static std::uint64_t own_items(const Chunk& chunk) {
    return chunk.memory.steps == 0 ? chunk.choice.plan.items() : chunk.memory.own_items;
  }

  void send_items(Chunk& chunk, Asks& asks) {
    const unsigned workers = chunk.world.size;
    const Status* sent = here().sent;
    if (std::any_of(sent, sent + workers, [](const Status& one) { return (one.flags & kNoRoom) != 0; })) {
      return widen(shares_, sent + chunk.world.rank) ? send_lengths(chunk, asks) : ask_lengths(chunk, asks);
    }
    Collective& items = ask(chunk, Collective::Kind::all_gather, asks);
    for (unsigned w = 0; w < workers; ++w) check_sent(shares_[0].plan, sent[w]);
    std::vector<const Status*> statuses;
    for (unsigned w = 0; w < workers; ++w) statuses.push_back(sent + w);
    const std::vector<const Plan*> plans(workers, &shares_[0].plan);
    inbox_.emplace(slot_of(chunk));
    statuses[chunk.world.rank] = &nothing_;  // lies where it was encoded
    inbox_->make_room(plans, statuses);
    const Lying own = outbox_->message(0, sent[chunk.world.rank]);
    items.send = {own.index, own.values};
    for (unsigned w = 0; w < workers; ++w) {
      items.into.push_back(inbox_->message(w).index);
      items.into.push_back(inbox_->message(w).values);
    }
    stage_ = Stage::items;
  }

  void add(Chunk& chunk, Asks& asks) {
    const auto timed = measured(chunk, &Report::decode_s, "peel decode gather");
    const unsigned workers = chunk.world.size;
    const Plan& plan = shares_[0].plan;
    std::uint64_t most = 0;
    for (unsigned w = 0; w < workers; ++w) most = std::max(most, here().sent[w].items);
    Reader reader(slot_of(chunk), stream());
    const Plan* const plans[] = {&plan};
    reader.make_room(plans, most, workers);
    for (unsigned w = 0; w < workers; ++w) {
      const Lying message = w == chunk.world.rank ? outbox_->message(0, here().sent[w]) : inbox_->message(w);
      here().sources[w] = reader.read(plan, message, w, there().opened + w);
    }
    require(cudaMemcpyAsync(there().sources, here().sources, workers * sizeof(AddedItems), cudaMemcpyHostToDevice,
                            stream()),
            "cudaMemcpyAsync");
    require(cudaMemsetAsync(there().sums, 0, sizeof(Status), stream()), "cudaMemsetAsync");
    require(add_sources(plan.geometry(), there().sources, workers, chunk.view.dense().data, shares_[0].where,
                        there().sums, stream()),
            "Adding items");
    Collective& settle = ask(chunk, Collective::Kind::settle, asks);
    fetch(settle, &Numbers::opened, workers);
    fetch(settle, &Numbers::sums, 1);
    stage_ = Stage::adding;
  }

  void finish(Chunk& chunk, Asks& asks) {
    const unsigned workers = chunk.world.size;
    std::uint64_t added = 0;
    for (unsigned w = 0; w < workers; ++w) {
      check_arrived(here().sent[w], here().opened[w]);
      added += here().sent[w].items;
    }
    const std::uint64_t items = here().sums[0].items;
    report_exactness(chunk.report, Exactness::rounded_once);
    chunk.report.items += items;
    chunk.report.union_elements += items * chunk.choice.plan.grain();
    chunk.memory.learn(items, (added + workers - 1) / workers);
    look_for_grain(chunk, asks);
  }

  Stage stage_ = Stage::begin;
  std::vector<Outbox::Share> shares_;  // one: all
  std::optional<Outbox> outbox_;
  std::optional<Inbox> inbox_;
  Status nothing_;
};

}  // namespace

std::unique_ptr<Course> make_gpu_gather(Gpu& gpu) { return std::make_unique<GpuGather>(gpu); }

}  // namespace peel::cuda::detail
