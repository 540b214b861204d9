// gather: everybody gets everybody's items and adds them: one round.
#include <algorithm>

#include "allreduce/course.h"
#include "items/add_items.h"
#include "items/item_message.h"

namespace peel::detail {

namespace {

class GatherCourse : public Course {
 public:
  void step(Chunk& chunk, Asks& asks) override { sent_ ? finish(chunk) : send(chunk, asks); }

 private:
  void send(Chunk& chunk, Asks& asks) {
    const Timed timed(chunk.report.encode_s, "peel encode gather");
    ChunkScratch& scratch = chunk.scratch;
    const ItemMessageShape shape = item_message_shape(chunk.choice.plan);
    chunk.view.scan(chunk.choice.plan, scratch.support, chunk.execution());
    own_ = view_items(chunk.engine(), shape, scratch.support, scratch.shares[chunk.world.rank]);
    pack_items(chunk.engine(), shape, own_, scratch.list, scratch.own_message);
    Collective& all = scratch.collectives[0];
    all.kind = Collective::Kind::all_gather;
    all.send.assign(1, scratch.own_message);
    all.likely_bytes = chunk.choice.likely_bytes[0];
    asks.push_back(&all);
    sent_ = true;
  }

  void finish(Chunk& chunk) const {
    const Timed timed(chunk.report.decode_s, "peel decode gather");
    ChunkScratch& scratch = chunk.scratch;
    const Plan& plan = chunk.choice.plan;
    const ItemMessageShape shape = item_message_shape(plan);
    std::vector<ItemView> views(chunk.world.size);
    for (unsigned w = 0; w < chunk.world.size; ++w) {
      views[w] = w == chunk.world.rank
                     ? own_
                     : open_items_as_sent(chunk.engine(), shape, scratch.collectives[0].received[w], scratch.shares[w]);
    }
    const std::uint64_t items = unite_items(chunk.engine(), plan.items(), views, scratch.words);
    if (plan.grain() == 1 && !chunk.view.sparse() && is_patched(items, plan.items())) {
      add_items_in_place(chunk.engine(), plan.type(), views, scratch.words,
                         static_cast<std::byte*>(chunk.view.dense().data));
    } else {
      scratch.values.resize(items * shape.item_bytes);
      add_items(chunk.engine(), plan.type(), plan.grain(), views, scratch.words, scratch.values.data());
      chunk.view.write(plan, scratch.words, scratch.values, chunk.execution());
    }
    std::uint64_t added = 0;
    for (const ItemView& view : views) added += view.items;
    report_exactness(chunk.report, Exactness::rounded_once);
    chunk.report.items += items;
    chunk.report.union_elements += items * plan.grain();
    chunk.history.learn(items, (added + chunk.world.size - 1) / chunk.world.size);
    learn_grain(chunk);
  }

  ItemView own_;
  bool sent_ = false;
};

}  // namespace

std::unique_ptr<Course> make_gather() { return std::make_unique<GatherCourse>(); }

}  // namespace peel::detail
