// split: each worker owns a share of the items. Items go to their owners, the owners add them, the sums go to all: two
// rounds, and the fewest bytes wherever supports overlap or workers are many.
#include <algorithm>

#include "allreduce/course.h"
#include "items/add_items.h"
#include "items/item_message.h"
#include "items/owner_map.h"

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
  static OwnerMap owners_of(const Chunk& chunk) {
    return {chunk.engine(), chunk.choice.plan.items(), chunk.world.size};
  }
  static std::size_t item_bytes(const Plan& plan) { return plan.grain() * size_of(plan.type()); }
  static ItemMessageShape shape_of(const Chunk& chunk, const OwnerMap& owners, unsigned owner) {
    return {owners.positions(owner), item_bytes(chunk.choice.plan)};
  }

  void send_items(Chunk& chunk, Asks& asks) {
    const Timed timed(chunk.report.encode_s, "peel encode split");
    ChunkScratch& scratch = chunk.scratch;
    const Plan& plan = chunk.choice.plan;
    const OwnerMap owners = owners_of(chunk);
    chunk.view.scan(plan, scratch.support, chunk.execution());
    const std::span<const std::uint64_t> words = scratch.support.words();
    std::vector<std::uint64_t> sizes(chunk.world.size);
    owners.deal_words(words, scratch.shares, sizes);

    Collective& move = scratch.collectives[0];
    move.kind = Collective::Kind::all_to_all;
    move.send.assign(chunk.world.size, {});
    move.likely_bytes = chunk.choice.likely_bytes[0];
    std::vector<std::byte*> targets(chunk.world.size);
    for (unsigned w = 0; w < chunk.world.size; ++w) {
      if (w == chunk.world.rank) {  // stays here: values alone
        scratch.messages[w].resize(sizes[w] * item_bytes(plan));
        targets[w] = scratch.messages[w].data();
        own_items_ = sizes[w];
        continue;
      }
      targets[w] =
          pack_positions(chunk.engine(), shape_of(chunk, owners, w),
                         {.words = scratch.shares[w].words, .items = sizes[w]}, scratch.list, scratch.messages[w]);
      move.send[w] = scratch.messages[w];
    }
    owners.deal_values(words, scratch.support.values(), item_bytes(plan), std::move(targets));
    asks.push_back(&move);
  }

  // The sums go where they are sent from.
  void send_sums(Chunk& chunk, Asks& asks) {
    const Timed timed(chunk.report.decode_s, "peel add split");
    ChunkScratch& scratch = chunk.scratch;
    const Plan& plan = chunk.choice.plan;
    const unsigned rank = chunk.world.rank;
    const ItemMessageShape shape = shape_of(chunk, owners_of(chunk), rank);
    std::vector<ItemView> views(chunk.world.size);
    std::uint64_t added = 0;
    for (unsigned w = 0; w < chunk.world.size; ++w) {
      views[w] =
          w == rank
              ? ItemView{.words = scratch.shares[w].words, .values = scratch.messages[w].data(), .items = own_items_}
              : open_items_as_sent(chunk.engine(), shape, scratch.collectives[0].received[w], scratch.shares[w]);
      added += views[w].items;
    }
    const std::uint64_t items = unite_items(chunk.engine(), shape.positions, views, scratch.words);
    std::byte* sums = pack_positions(chunk.engine(), shape, {.words = scratch.words, .items = items, .count = added},
                                     scratch.list, scratch.own_message);
    add_items(chunk.engine(), plan.type(), plan.grain(), views, scratch.words, sums);
    Collective& all = scratch.collectives[1];
    all.kind = Collective::Kind::all_gather;
    all.send.assign(1, scratch.own_message);
    all.likely_bytes = chunk.choice.likely_bytes[1];
    all.received.swap(scratch.collectives[0].received);  // what lies there is used up
    asks.push_back(&all);
  }

  static void finish(Chunk& chunk) {
    const Timed timed(chunk.report.decode_s, "peel decode split");
    ChunkScratch& scratch = chunk.scratch;
    const Plan& plan = chunk.choice.plan;
    const OwnerMap owners = owners_of(chunk);
    std::vector<ItemView> shares(chunk.world.size);
    std::uint64_t items = 0;
    std::uint64_t added = 0;
    for (unsigned w = 0; w < chunk.world.size; ++w) {
      const std::span<const std::byte> message =
          w == chunk.world.rank ? std::span<const std::byte>(scratch.own_message) : scratch.collectives[1].received[w];
      shares[w] = open_items(chunk.engine(), shape_of(chunk, owners, w), message, scratch.shares[w]);
      items += shares[w].items;
      added += shares[w].count;
    }
    owners.collect(shares, item_bytes(plan), scratch.words, scratch.values);
    chunk.view.write(plan, scratch.words, scratch.values, chunk.execution());
    report_exactness(chunk.report, Exactness::rounded_once);
    chunk.report.items += items;
    chunk.report.union_elements += items * plan.grain();
    chunk.history.learn(items, (added + chunk.world.size - 1) / chunk.world.size);
    learn_grain(chunk);
  }

  int stage_ = 0;
  std::uint64_t own_items_ = 0;  // of this worker's own share
};

}  // namespace

std::unique_ptr<Course> make_split() { return std::make_unique<SplitCourse>(); }

}  // namespace peel::detail
