// split: each worker owns a share of the items. Items go to their owners, the owners add them, the sums go to all: two
// rounds, and the fewest bytes wherever supports overlap or workers are many.
#include <algorithm>

#include "allreduce/add_items.h"
#include "allreduce/course.h"
#include "allreduce/parcel.h"
#include "allreduce/stripes.h"

namespace peel::detail {

namespace {

class SplitCourse : public Course {
 public:
  void step(Chunk& chunk, Asks& asks) override {
    switch (stage_++) {
      case 0:
        return send_items(chunk, asks);
      case 1:
        return send_sums(chunk, asks);
      default:
        return finish(chunk);
    }
  }

 private:
  static Stripes stripes_of(const Chunk& chunk) { return {chunk.choice.plan.items(), chunk.world.size}; }
  static std::size_t item_bytes(const Plan& plan) { return plan.grain() * size_of(plan.type()); }
  static ParcelShape shape_of(const Chunk& chunk, const Stripes& stripes, unsigned owner) {
    return {stripes.positions(owner), item_bytes(chunk.choice.plan)};
  }

  void send_items(Chunk& chunk, Asks& asks) {
    const Timed timed(chunk.report.encode_s, "peel encode split");
    Slot& slot = chunk.slot;
    const Plan& plan = chunk.choice.plan;
    const Stripes stripes = stripes_of(chunk);
    chunk.view.scan(plan, slot.support, chunk.execution());
    const std::span<const std::uint64_t> words = slot.support.words();
    std::vector<std::uint64_t> sizes(chunk.world.size);
    stripes.deal_words(words, slot.shares, sizes);

    Collective& move = slot.collectives[0];
    move.kind = Collective::Kind::all_to_all;
    move.send.assign(chunk.world.size, {});
    move.likely_bytes = chunk.choice.likely_bytes[0];
    std::vector<std::byte*> targets(chunk.world.size);
    for (unsigned w = 0; w < chunk.world.size; ++w) {
      if (w == chunk.world.rank) {  // stays here: values alone
        slot.parcels[w].resize(sizes[w] * item_bytes(plan));
        targets[w] = slot.parcels[w].data();
        own_items_ = sizes[w];
        continue;
      }
      targets[w] = open_values(shape_of(chunk, stripes, w), {.words = slot.shares[w].words, .items = sizes[w]},
                               slot.list, slot.parcels[w]);
      move.send[w] = slot.parcels[w];
    }
    stripes.deal_values(words, slot.support.values(), item_bytes(plan), std::move(targets));
    asks.push_back(&move);
  }

  // The sums go where they are sent from.
  void send_sums(Chunk& chunk, Asks& asks) {
    const Timed timed(chunk.report.decode_s, "peel add split");
    Slot& slot = chunk.slot;
    const Plan& plan = chunk.choice.plan;
    const unsigned rank = chunk.world.rank;
    const ParcelShape shape = shape_of(chunk, stripes_of(chunk), rank);
    std::vector<ItemView> views(chunk.world.size);
    std::uint64_t added = 0;
    for (unsigned w = 0; w < chunk.world.size; ++w) {
      views[w] = w == rank
                     ? ItemView{.words = slot.shares[w].words, .values = slot.parcels[w].data(), .items = own_items_}
                     : open_parcel_as_it_comes(shape, slot.collectives[0].received[w], slot.shares[w]);
      added += views[w].items;
    }
    const std::uint64_t items = unite_items(shape.positions, views, slot.words);
    std::byte* sums =
        open_values(shape, {.words = slot.words, .items = items, .count = added}, slot.list, slot.own_parcel);
    add_items(plan.type(), plan.grain(), views, slot.words, sums);
    Collective& all = slot.collectives[1];
    all.kind = Collective::Kind::all_gather;
    all.send.assign(1, slot.own_parcel);
    all.likely_bytes = chunk.choice.likely_bytes[1];
    all.received.swap(slot.collectives[0].received);  // what lies there is used up
    asks.push_back(&all);
  }

  static void finish(Chunk& chunk) {
    const Timed timed(chunk.report.decode_s, "peel decode split");
    Slot& slot = chunk.slot;
    const Plan& plan = chunk.choice.plan;
    const Stripes stripes = stripes_of(chunk);
    std::vector<ItemView> shares(chunk.world.size);
    std::uint64_t items = 0;
    std::uint64_t added = 0;
    for (unsigned w = 0; w < chunk.world.size; ++w) {
      const std::span<const std::byte> parcel =
          w == chunk.world.rank ? std::span<const std::byte>(slot.own_parcel) : slot.collectives[1].received[w];
      shares[w] = open_parcel(shape_of(chunk, stripes, w), parcel, slot.shares[w]);
      items += shares[w].items;
      added += shares[w].count;
    }
    stripes.collect(shares, item_bytes(plan), slot.words, slot.values);
    chunk.view.write(plan, slot.words, slot.values, chunk.execution());
    report_exactness(chunk.report, Exactness::rounded_once);
    chunk.report.items += items;
    chunk.report.union_elements += items * plan.grain();
    chunk.memory.learn(items, (added + chunk.world.size - 1) / chunk.world.size);
    learn_grain(chunk);
  }

  int stage_ = 0;
  std::uint64_t own_items_ = 0;  // of this worker's own share
};

}  // namespace

std::unique_ptr<Course> make_split() { return std::make_unique<SplitCourse>(); }

}  // namespace peel::detail
