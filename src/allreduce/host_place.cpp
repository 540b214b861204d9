// The place of arrays in host memory: everything is done at once, with the verbs of the codec and of items.
#include <chrono>
#include <cstring>
#include <utility>

#include "allreduce/average.h"
#include "allreduce/calibration.h"
#include "allreduce/place.h"
#include "allreduce/strategy_run.h"
#include "allreduce/tagged_index.h"
#include "codec/values.h"
#include "items/add_items.h"
#include "items/item_message.h"
#include "items/owner_map.h"
#include "peel/items.h"

namespace peel::detail {

namespace {

class HostTiming final : public Timing {
 public:
  HostTiming(double& seconds, const char* name)
      : Timing(name), seconds_(seconds), start_(std::chrono::steady_clock::now()) {}
  ~HostTiming() override {
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  double& seconds_;
  std::chrono::steady_clock::time_point start_;
};

ConstDense read_only(const Dense& x) { return {x.data, x.size, x.type}; }

class HostPlace final : public ChunkPlace {
 public:
  void step(StrategyRun& run, Chunk& chunk, Requests& requests) override { run.step(chunk, requests); }
  void withdraw() noexcept override {}
  void fence(Chunk& /*chunk*/, Requests& /*requests*/) override {}
  std::unique_ptr<Timing> timing(Chunk& chunk, double Report::*seconds, const char* name) override {
    return std::make_unique<HostTiming>(chunk.report.*seconds, name);
  }

  // ---- the array

  void average(Chunk& chunk) override {
    const HostTiming timing(chunk.report.encode_s, "peel average");
    const Dense x = chunk.view.dense();
    const std::span bytes(static_cast<std::byte*>(x.data), x.size * size_of(x.type));
    multiply(x.type, chunk.view.factor(), bytes, bytes.data());
  }

  void count_items(Chunk& chunk) override {
    const HostTiming timing(chunk.report.decode_s, "peel count");
    scan(chunk.choice.plan, read_only(chunk.view.dense()), chunk.scratch.support, chunk.execution());
  }
  std::uint64_t counted_items(const Chunk& chunk) override { return chunk.scratch.support.items(); }

  void count_grains(Chunk& /*chunk*/) override {}
  GrainChoice best_grain(Chunk& chunk) override {
    const HostTiming timing(chunk.report.decode_s, "peel grain");
    return peel::best_grain(read_only(chunk.view.dense()), grain_options(chunk));
  }

  // ---- messages that are combined

  void begin_sketch(Chunk& /*chunk*/) override {}

  void request_summary(Chunk& chunk, Requests& requests) override { index_.request_summary(chunk, requests); }

  void request_index(Chunk& chunk, Requests& requests) override {
    const Plan& plan = chunk.choice.plan;
    ChunkScratch& scratch = chunk.scratch;
    chunk.view.scan(plan, scratch.support, chunk.execution());
    // Without a scale nobody asks how large values are, or whether they are finite.
    const Vitals own = has_scale(plan) ? own_vitals(chunk) : Vitals{.items = scratch.support.items(), .magnitude = {}};
    if (own.finite) {
      encode_index(plan, scratch.support, scratch.message, chunk.execution());
    } else {  // nothing is sent but the word of it
      scratch.message = Message(plan);
    }
    index_.request_or(chunk, own, requests);
  }

  void request_sketch(Chunk& chunk, Requests& requests) override {
    const Plan& plan = chunk.choice.plan;
    ChunkScratch& scratch = chunk.scratch;
    chunk.view.scan(plan, scratch.support, chunk.execution());
    const Vitals own = own_vitals(chunk);
    if (own.finite) {
      encode(plan, scratch.support, scratch.message, chunk.execution());
    } else {  // nothing is sent but the word of it
      scratch.message = Message(plan);
    }
    index_.request_or(chunk, own, requests);
    request_sum(chunk, plan.payload_type(), scratch.message.payload, requests, 1);
  }

  Vitals summary(Chunk& chunk) override { return index_.take(chunk); }
  bool overflowed(const Chunk& chunk) const override { return (chunk.scratch.message.flags() & kFlagOverflow) != 0; }

  void encode_values(Chunk& chunk) override {
    peel::encode_values(chunk.choice.plan, chunk.scratch.support, chunk.scratch.message, chunk.execution());
  }
  std::optional<std::span<std::byte>> values(Chunk& chunk) override { return chunk.scratch.message.payload; }

  void decode(Chunk& chunk) override {
    const bool sketch = chunk.choice.strategy == Strategy::sketch;
    const bool estimate = chunk.estimates();
    if (estimate && chunk.residual.size != 0) {
      const Dense x = chunk.view.dense();
      std::memcpy(chunk.residual.data, x.data, x.size * size_of(x.type));
    }
    recovery_ = chunk.view.decode(chunk.choice.plan, chunk.scratch.message,
                                  {.estimate = estimate, .list_lost = sketch, .execution = chunk.execution()});
  }
  std::optional<Decoded> decoded(Chunk& /*chunk*/) override {
    return Decoded{.items = recovery_.items, .lost = recovery_.lost, .rounds = recovery_.rounds};
  }

  void measure_estimates(Chunk& chunk, double trusted) override {
    const Plan& plan = chunk.choice.plan;
    const std::vector<std::uint64_t>& lost = recovery_.lost_items;
    energy_ = {.cells = cell_energy(plan, chunk.scratch.message.payload)};
    energy_.values = energy_.cells;
    if (recovery_.lost != 0) chunk.view.measure(plan, lost, energy_);
    if (chunk.residual.size == 0) return;
    feed_back(plan, lost, trusted, chunk.options.average ? 1 : 1.0 / chunk.world.size, chunk.view.dense(),
              chunk.residual);
  }
  ChunkEnergy energy(const Chunk& /*chunk*/) override { return energy_; }

  std::span<std::byte> take_lost(Chunk& chunk) override {
    const HostTiming timing(chunk.report.decode_s, "peel repair");
    const Plan& plan = chunk.choice.plan;
    const std::uint64_t counters = recovery_.lost_items.size() * plan.grain();
    Buffer<std::byte>& own = chunk.scratch.values;
    own.resize(counters * size_of(plan.type()));
    chunk.view.take(plan, recovery_.lost_items, own.data());
    Buffer<std::byte>& cells = chunk.scratch.message.payload;
    cells.resize(counters * plan.cell_bytes());
    with_sketch_cell(plan.geometry(), [&](auto t, auto c) {
      using T = decltype(t);
      using Cell = decltype(c);
      const Scaling scaling(plan.geometry());
      bool fits = true;  // all of them did in the first place
      for (std::uint64_t i = 0; i < counters; ++i) {
        reinterpret_cast<Cell*>(cells.data())[i] =
            to_cell<Cell>(reinterpret_cast<const T*>(own.data())[i], scaling, fits);
      }
    });
    return cells;
  }

  void put_lost(Chunk& chunk) override {
    const Plan& plan = chunk.choice.plan;
    const std::uint64_t counters = recovery_.lost_items.size() * plan.grain();
    Buffer<std::byte>& sums = chunk.scratch.values;
    with_sketch_cell(plan.geometry(), [&](auto t, auto c) {
      using T = decltype(t);
      using Cell = decltype(c);
      const Scaling scaling(plan.geometry());
      for (std::uint64_t i = 0; i < counters; ++i) {
        reinterpret_cast<T*>(sums.data())[i] =
            from_cell<T>(reinterpret_cast<const Cell*>(chunk.scratch.message.payload.data())[i], scaling);
      }
    });
    chunk.view.put(plan, recovery_.lost_items, sums.data());
  }

  // ---- items that move: transports of host memory find out lengths by themselves

  void encode_items(Chunk& chunk) override {
    chunk.view.scan(chunk.choice.plan, chunk.scratch.support, chunk.execution());
    is_split(chunk) ? encode_for_owners(chunk) : encode_for_all(chunk);
  }
  void request_lengths(Chunk& /*chunk*/, Requests& /*requests*/) override {}
  bool fits(Chunk& /*chunk*/, Requests& /*requests*/) override { return true; }

  void request_items(Chunk& chunk, Requests& requests) override {
    ChunkScratch& scratch = chunk.scratch;
    if (!is_split(chunk)) return request_all(chunk, requests, 0);
    Collective& move = request(chunk, Collective::Kind::all_to_all, requests);
    move.likely_bytes = chunk.choice.likely_bytes[0];
    for (unsigned w = 0; w < chunk.world.size; ++w) {
      move.send.push_back(w == chunk.world.rank ? std::span<const std::byte>() : scratch.messages[w]);
    }
  }

  void add_items(Chunk& chunk) override { is_split(chunk) ? add_own_share(chunk) : add_all(chunk); }

  void encode_sums(Chunk& /*chunk*/) override {}  // they were added where they are sent from
  void request_sum_lengths(Chunk& /*chunk*/, Requests& /*requests*/) override {}
  bool sums_fit(Chunk& /*chunk*/, Requests& /*requests*/) override { return true; }

  void request_sums(Chunk& chunk, Requests& requests) override {
    request_all(chunk, requests, 1);
    auto& collectives = chunk.scratch.collectives;
    collectives[1].received.swap(collectives[0].received);  // what lies there is used up
  }

  void write_sums(Chunk& chunk) override {
    ChunkScratch& scratch = chunk.scratch;
    const Plan& plan = chunk.choice.plan;
    const OwnerMap owners = owners_of(chunk);
    std::vector<ItemView> shares(chunk.world.size);
    for (unsigned w = 0; w < chunk.world.size; ++w) {
      const std::span<const std::byte> message =
          w == chunk.world.rank ? std::span<const std::byte>(scratch.own_message) : scratch.collectives[1].received[w];
      shares[w] = open_items(chunk.engine(), shape_of(chunk, owners, w, chunk.world.size), message, scratch.shares[w]);
      counts_.items += shares[w].items;
      counts_.added += shares[w].count;
    }
    owners.collect(shares, item_bytes(plan), scratch.words, scratch.values);
    chunk.view.write(plan, scratch.words, scratch.values, chunk.execution());
  }

  ItemCounts item_counts(Chunk& /*chunk*/) override { return counts_; }

 private:
  static bool is_split(const Chunk& chunk) { return chunk.choice.strategy == Strategy::split; }
  static std::size_t item_bytes(const Plan& plan) { return plan.grain() * size_of(plan.type()); }
  static OwnerMap owners_of(const Chunk& chunk) {
    return {chunk.engine(), chunk.choice.plan.items(), chunk.world.size};
  }
  static ItemMessageShape shape_of(const Chunk& chunk, const OwnerMap& owners, unsigned owner,
                                   std::uint64_t workers = 1) {
    return {owners.positions(owner), item_bytes(chunk.choice.plan), workers};
  }

  void encode_for_all(Chunk& chunk) {
    ChunkScratch& scratch = chunk.scratch;
    const ItemMessageShape shape = item_message_shape(chunk.choice.plan);
    own_ = view_items(chunk.engine(), shape, scratch.support, scratch.shares[chunk.world.rank]);
    pack_items(chunk.engine(), shape, own_, scratch.list, scratch.own_message);
  }

  void encode_for_owners(Chunk& chunk) {
    ChunkScratch& scratch = chunk.scratch;
    const Plan& plan = chunk.choice.plan;
    const OwnerMap owners = owners_of(chunk);
    const std::span<const std::uint64_t> words = scratch.support.words();
    std::vector<std::uint64_t> sizes(chunk.world.size);
    owners.deal_words(words, scratch.shares, sizes);
    std::vector<std::byte*> targets(chunk.world.size);
    for (unsigned w = 0; w < chunk.world.size; ++w) {
      if (w == chunk.world.rank) {  // stays here: values alone
        scratch.messages[w].resize(sizes[w] * item_bytes(plan));
        targets[w] = scratch.messages[w].data();
        own_ = {.words = scratch.shares[w].words, .values = targets[w], .items = sizes[w]};
        continue;
      }
      targets[w] =
          pack_positions(chunk.engine(), shape_of(chunk, owners, w),
                         {.words = scratch.shares[w].words, .items = sizes[w]}, scratch.list, scratch.messages[w]);
    }
    owners.deal_values(words, scratch.support.values(), item_bytes(plan), std::move(targets));
  }

  static void request_all(Chunk& chunk, Requests& requests, std::size_t round) {
    Collective& all = request(chunk, Collective::Kind::all_gather, requests, round);
    all.send.assign(1, chunk.scratch.own_message);
    all.likely_bytes = chunk.choice.likely_bytes[round];
  }

  // Of all workers, over the positions of one share.
  [[nodiscard]] std::vector<ItemView> open_received(Chunk& chunk, const ItemMessageShape& shape) const {
    ChunkScratch& scratch = chunk.scratch;
    std::vector<ItemView> views(chunk.world.size);
    for (unsigned w = 0; w < chunk.world.size; ++w) {
      views[w] = w == chunk.world.rank
                     ? own_
                     : open_items_as_sent(chunk.engine(), shape, scratch.collectives[0].received[w], scratch.shares[w]);
    }
    return views;
  }
  static std::uint64_t sum_of_items(std::span<const ItemView> views) {
    std::uint64_t items = 0;
    for (const ItemView& view : views) items += view.items;
    return items;
  }

  void add_all(Chunk& chunk) {
    ChunkScratch& scratch = chunk.scratch;
    const Plan& plan = chunk.choice.plan;
    const ItemMessageShape shape = item_message_shape(plan);
    const std::vector<ItemView> views = open_received(chunk, shape);
    counts_ = {.items = unite_items(chunk.engine(), plan.items(), views, scratch.words), .added = sum_of_items(views)};
    if (plan.grain() == 1 && !chunk.view.sparse() && is_patched(counts_.items, plan.items())) {
      add_items_in_place(chunk.engine(), plan.type(), views, scratch.words,
                         static_cast<std::byte*>(chunk.view.dense().data));
      return;
    }
    scratch.values.resize(counts_.items * shape.item_bytes);
    detail::add_items(chunk.engine(), plan.type(), plan.grain(), views, scratch.words, scratch.values.data());
    chunk.view.write(plan, scratch.words, scratch.values, chunk.execution());
  }

  void add_own_share(Chunk& chunk) {
    ChunkScratch& scratch = chunk.scratch;
    const Plan& plan = chunk.choice.plan;
    ItemMessageShape shape = shape_of(chunk, owners_of(chunk), chunk.world.rank);
    const std::vector<ItemView> views = open_received(chunk, shape);
    const std::uint64_t items = unite_items(chunk.engine(), shape.positions, views, scratch.words);
    shape.workers = chunk.world.size;
    std::byte* const sums =
        pack_positions(chunk.engine(), shape, {.words = scratch.words, .items = items, .count = sum_of_items(views)},
                       scratch.list, scratch.own_message);
    detail::add_items(chunk.engine(), plan.type(), plan.grain(), views, scratch.words, sums);
  }

  TaggedIndex index_;
  Recovery recovery_;
  ChunkEnergy energy_;
  ItemView own_;  // items of this worker that it adds itself
  ItemCounts counts_;
};

}  // namespace

std::unique_ptr<ChunkPlace> make_host_place() { return std::make_unique<HostPlace>(); }

}  // namespace peel::detail
