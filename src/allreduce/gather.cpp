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
    const ParcelShape shape = parcel_shape(chunk.choice.plan);
    chunk.view.scan(chunk.choice.plan, slot.support, chunk.execution());
    own_ = view_items(shape, slot.support, slot.shares[chunk.world.rank]);
    pack_parcel(shape, own_, slot.list, slot.own_parcel);
    Collective& all = slot.collectives[0];
    all.kind = Collective::Kind::all_gather;
    all.send.assign(1, slot.own_parcel);
    all.likely_bytes = chunk.choice.likely_bytes[0];
    asks.push_back(&all);
    sent_ = true;
  }

  void finish(Chunk& chunk) const {
    const Timed timed(chunk.report.decode_s, "peel decode gather");
    Slot& slot = chunk.slot;
    const Plan& plan = chunk.choice.plan;
    const ParcelShape shape = parcel_shape(plan);
    std::vector<ItemView> views(chunk.world.size);
    for (unsigned w = 0; w < chunk.world.size; ++w) {
      views[w] = w == chunk.world.rank
                     ? own_
                     : open_parcel_as_it_comes(shape, slot.collectives[0].received[w], slot.shares[w]);
    }
    const std::uint64_t items = unite_items(plan.items(), views, slot.words);
    if (plan.grain() == 1 && !chunk.view.sparse() && is_patched(items, plan.items())) {
      add_items_in_place(plan.type(), views, slot.words, static_cast<std::byte*>(chunk.view.dense().data));
    } else {
      slot.values.resize(items * shape.item_bytes);
      add_items(plan.type(), plan.grain(), views, slot.words, slot.values.data());
      chunk.view.write(plan, slot.words, slot.values, chunk.execution());
    }
    std::uint64_t added = 0;
    for (const ItemView& view : views) added += view.items;
    report_exactness(chunk.report, Exactness::rounded_once);
    chunk.report.items += items;
    chunk.report.union_elements += items * plan.grain();
    chunk.memory.learn(items, (added + chunk.world.size - 1) / chunk.world.size);
    learn_grain(chunk);
  }

  ItemView own_;
  bool sent_ = false;
};

}  // namespace

std::unique_ptr<Course> make_gather() { return std::make_unique<GatherCourse>(); }

}  // namespace peel::detail
