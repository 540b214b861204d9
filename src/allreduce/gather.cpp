// gather: everybody gets everybody's items and adds them: one round.
#include <algorithm>

#include "allreduce/add_items.h"
#include "allreduce/course.h"
#include "allreduce/parcel.h"

namespace peel::detail {

namespace {

class GatherCourse : public Course {
 public:
  void step(Chunk& chunk, Asks& asks) override { sent_ ? finish(chunk) : send(chunk, asks); }

 private:
  void send(Chunk& chunk, Asks& asks) {
    const Timed timed(chunk.report.encode_s, "peel encode gather");
    Slot& slot = chunk.slot;
    chunk.view.scan(chunk.choice.plan, slot.support, chunk.execution());
    pack_parcel(parcel_shape(chunk.choice.plan),
                {.words = slot.support.words(), .values = slot.support.values().data(), .items = slot.support.items()},
                slot.list, slot.own_parcel);
    Collective& all = slot.collectives[0];
    all.kind = Collective::Kind::all_gather;
    all.send.assign(1, slot.own_parcel);
    asks.push_back(&all);
    sent_ = true;
  }

  static void finish(Chunk& chunk) {
    const Timed timed(chunk.report.decode_s, "peel decode gather");
    Slot& slot = chunk.slot;
    const Plan& plan = chunk.choice.plan;
    const std::uint64_t words = (plan.items() + 63) / 64;
    std::vector<ItemView> views(chunk.world.size);
    for (unsigned w = 0; w < chunk.world.size; ++w) {
      views[w] = w == chunk.world.rank
                     ? ItemView{.words = slot.support.words().first(words),
                                .values = slot.support.values().data(),
                                .items = slot.support.items()}
                     : open_parcel(parcel_shape(plan), slot.collectives[0].received[w], slot.share_words[w]);
    }
    const std::uint64_t items = unite_items(views, slot.words);
    slot.values.resize(items * parcel_shape(plan).item_bytes);
    add_items(plan.type(), plan.grain(), views, slot.words, slot.values.data());
    std::uint64_t added = 0;
    for (const ItemView& view : views) added += view.items;
    chunk.view.write(plan, slot.words, slot.values, chunk.execution());
    report_exactness(chunk.report, Exactness::rounded_once);
    chunk.report.items += items;
    chunk.report.union_elements += items * plan.grain();
    chunk.memory.learn(items, (added + chunk.world.size - 1) / chunk.world.size);
    learn_grain(chunk);
  }

  bool sent_ = false;
};

}  // namespace

std::unique_ptr<Course> make_gather() { return std::make_unique<GatherCourse>(); }

}  // namespace peel::detail
