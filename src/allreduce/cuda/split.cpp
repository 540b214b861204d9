// split on a device: each worker owns every so many tiles. Items go to their owners, the owners add them where they
// belong in the array, and the sums go to all, lengths first each time.
#include <algorithm>
#include <vector>

#include "allreduce/cuda/lengths.h"
#include "allreduce/cuda/message_course.h"
#include "codec/cuda/interpretation.h"

namespace peel::cuda::detail {

namespace {

class GpuSplit final : public MessageCourse {
 public:
  using MessageCourse::MessageCourse;

 protected:
  void advance(Chunk& chunk, Asks& asks) override {
    switch (stage_) {
      case Stage::begin:
        return encode_items(chunk, asks);
      case Stage::lengths:
        return send_items(chunk, asks);
      case Stage::items:
        return add(chunk, asks);
      case Stage::sum_lengths:
        return send_sums(chunk, asks);
      case Stage::sums:
        return write(chunk, asks);
      case Stage::writing:
        return finish(chunk, asks);
    }
  }

 private:
  enum class Stage : std::uint8_t { begin, lengths, items, sum_lengths, sums, writing };

  // Of one share, where that is known.
  static std::uint64_t share_of(const Chunk& chunk, std::uint64_t items) {
    return (chunk.history.steps == 0 ? chunk.choice.plan.items() : items) / chunk.world.size + 1;
  }

  // ---- items to their owners

  void encode_items(Chunk& chunk, Asks& asks) {
    const auto timed = measured(chunk, &Report::encode_s, "peel encode split");
    const unsigned workers = chunk.world.size;
    if (shares_.empty()) {
      const Shares all(chunk.choice.plan, workers);
      for (unsigned w = 0; w < workers; ++w) {
        const Plan plan = all.plan(w, share_of(chunk, chunk.history.own_items));
        shares_.push_back({plan, all.stripes(w), roomy(chunk.history, plan, share_of(chunk, chunk.history.own_items))});
        const Plan sums = all.plan(w, share_of(chunk, chunk.history.items));
        sums_.push_back({sums, all.stripes(w), roomy(chunk.history, sums, share_of(chunk, chunk.history.items))});
      }
      outbox_.emplace(slot_of(chunk), stream());
      inbox_.emplace(slot_of(chunk));
    }
    outbox_->encode(chunk.view.dense(), chunk.view.factor(), shares_, there().leaving);
    send_lengths(chunk, asks);
  }

  void send_lengths(Chunk& chunk, Asks& asks) {
    const unsigned workers = chunk.world.size;
    const unsigned rank = chunk.world.rank;
    require(post_lengths(there().leaving, workers, rank, there().sent, stream()), "Posting lengths");
    Collective& lengths = ask(chunk, Collective::Kind::all_to_all, asks);
    const auto piece = [&](Status* of, unsigned w) {
      return std::span(reinterpret_cast<std::byte*>(of + w), w == rank ? 0 : sizeof(Status));
    };
    for (unsigned w = 0; w < workers; ++w) {
      lengths.send.push_back(piece(there().leaving, w));
      lengths.into.push_back(piece(there().sent, w));
    }
    fetch(lengths, &Numbers::leaving, workers);
    fetch(lengths, &Numbers::sent, workers);
    stage_ = Stage::lengths;
  }

  // Of the items that worker w sends this one.
  [[nodiscard]] std::vector<const Status*> coming_items(const Chunk& chunk) const {
    std::vector<const Status*> statuses;
    for (unsigned w = 0; w < chunk.world.size; ++w) statuses.push_back(here().sent + w);
    return statuses;
  }

  void send_items(Chunk& chunk, Asks& asks) {
    const unsigned workers = chunk.world.size;
    const unsigned rank = chunk.world.rank;
    if (lack_room({here().sent, workers})) {
      return widen(shares_, here().leaving) ? encode_items(chunk, asks) : send_lengths(chunk, asks);
    }
    std::vector<const Status*> coming = coming_items(chunk);
    for (const Status* one : coming) check_sent(shares_[rank].plan, *one);
    coming[rank] = &nothing_;
    const std::vector<const Plan*> plans(workers, &shares_[rank].plan);
    inbox_->make_room(plans, coming);
    Collective& items = ask(chunk, Collective::Kind::all_to_all, asks);
    for (unsigned w = 0; w < workers; ++w) {
      add_piece(items, w == rank ? Lying{} : outbox_->message(w, here().leaving[w]), inbox_->message(w));
    }
    stage_ = Stage::items;
  }

  static void add_piece(Collective& to, const Lying& leaving, const Lying& coming) {
    to.send.push_back(leaving.index);
    to.send.push_back(leaving.values);
    to.into.push_back(coming.index);
    to.into.push_back(coming.values);
  }

  // ---- owners add, and the sums to everybody

  void add(Chunk& chunk, Asks& asks) {
    const auto timed = measured(chunk, &Report::decode_s, "peel add split");
    const unsigned rank = chunk.world.rank;
    if (shares_[rank].plan.elements() != 0) {
      const Lying own = outbox_->message(rank, here().leaving[rank]);
      add_messages(chunk, shares_[rank], coming_items(chunk), own, there().sums + 2 * rank);
    }
    encode_sums(chunk, asks);
  }

  void encode_sums(Chunk& chunk, Asks& asks) {
    const unsigned rank = chunk.world.rank;
    outbox_->encode(chunk.view.dense(), 1, std::span(sums_).subspan(rank, 1), there().sums + 2 * rank + 1);
    ask_sum_lengths(chunk, asks);
  }

  void ask_sum_lengths(Chunk& chunk, Asks& asks) {
    fetch(ask_lengths(chunk, asks, &Numbers::sums, 2), &Numbers::opened, chunk.world.size);
    stage_ = Stage::sum_lengths;
  }

  void send_sums(Chunk& chunk, Asks& asks) {
    const unsigned workers = chunk.world.size;
    const unsigned rank = chunk.world.rank;
    const Status* sums = here().sums;
    for (unsigned w = 0; w < workers && shares_[rank].plan.elements() != 0; ++w) {
      check_arrived(here().sent[w], here().opened[w]);
    }
    if (lack_room({sums, std::size_t{2} * workers})) {
      if (widen(std::span(sums_).subspan(rank, 1), sums + 2 * rank + 1)) return encode_sums(chunk, asks);
      return ask_sum_lengths(chunk, asks);
    }
    std::vector<const Status*> sent;
    std::vector<const Plan*> plans;
    for (unsigned w = 0; w < workers; ++w) {
      check_sent(sums_[w].plan, sums[2 * w + 1]);
      sent.push_back(sums + 2 * w + 1);
      plans.push_back(&sums_[w].plan);
    }
    gather_messages(chunk, asks, plans, sent, outbox_->message(0, sums[2 * rank + 1]));
    stage_ = Stage::sums;
  }

  // ---- everybody writes the shares of the others

  void write(Chunk& chunk, Asks& asks) {
    const auto timed = measured(chunk, &Report::decode_s, "peel decode split");
    const unsigned workers = chunk.world.size;
    std::uint64_t most = 0;
    std::vector<const Plan*> plans;
    for (unsigned w = 0; w < workers; ++w) {
      most = std::max(most, here().sums[2 * w + 1].items);
      plans.push_back(&sums_[w].plan);
    }
    Reader reader(slot_of(chunk), stream());
    reader.make_room(plans, most, 1);
    for (unsigned w = 0; w < workers; ++w) {
      const Plan& plan = sums_[w].plan;
      if (w == chunk.world.rank || plan.elements() == 0) continue;
      const AddedItems read = reader.read(plan, inbox_->message(w), 0, there().opened + w);
      require(expand(plan.geometry(), plain(plan.geometry()), read.items, read.values, read.room,
                     chunk.view.dense().data, sums_[w].where, there().opened + w, stream()),
              "Writing sums");
    }
    fetch(ask(chunk, Collective::Kind::settle, asks), &Numbers::opened, workers);
    stage_ = Stage::writing;
  }

  void finish(Chunk& chunk, Asks& asks) {
    const unsigned workers = chunk.world.size;
    std::uint64_t items = 0;
    std::uint64_t added = 0;
    for (unsigned w = 0; w < workers; ++w) {
      if (w != chunk.world.rank && sums_[w].plan.elements() != 0) {
        check_arrived(here().sums[2 * w + 1], here().opened[w]);
      }
      items += here().sums[2 * w].items;
      added += here().sums[2 * w].recovered;
    }
    finish_sums(chunk, asks, items, added);
  }

  Stage stage_ = Stage::begin;
  std::vector<Outbox::Share> shares_;  // what everybody owns, with the items of one worker
  std::vector<Outbox::Share> sums_;    // the same with their sums
};

}  // namespace

std::unique_ptr<Course> make_gpu_split(Gpu& gpu) { return std::make_unique<GpuSplit>(gpu); }

}  // namespace peel::cuda::detail
