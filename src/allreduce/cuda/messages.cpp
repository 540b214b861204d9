#include "allreduce/cuda/messages.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "allreduce/cuda/multiply.h"
#include "codec/cuda/striped.h"
#include "codec/cuda/workspace.h"
#include "codec/engine.h"

namespace peel::cuda::detail {

namespace {

// Of all but words, which a message with a bitmap brings along.
struct OpenMessage {
  Items items;
  std::uint64_t* flag_word = nullptr;

  OpenMessage(const Geometry& g, Arena& arena) {
    items.count = peel::detail::word_count(g);
    items.words = arena.take<std::uint64_t>(g.index == Index::list ? items.count : 0);
    items.counts.tiles = arena.take<std::uint32_t>(tiles_of(g));
    items.counts.supers = arena.take<std::uint64_t>(supers_of(g));
    items.counts.done = arena.take<std::uint32_t>(supers_of(g) + 1);
    flag_word = arena.take<std::uint64_t>(1);
  }
};

ListScratch list_scratch(const Geometry& g, std::uint64_t items, Arena& arena) {
  ListScratch scratch;
  scratch.chunks = list_chunks(g, items);
  scratch.lengths = arena.take<std::uint64_t>(scratch.chunks);
  scratch.starts = arena.take<std::uint64_t>(scratch.chunks);
  scratch.scan_bytes = list_scan_bytes(scratch.chunks);
  scratch.scan = arena.take<std::byte>(scratch.scan_bytes);
  return scratch;
}

std::size_t item_bytes(const Plan& plan) { return plan.grain() * plan.cell_bytes(); }

}  // namespace

void Outbox::encode(Dense x, double factor, std::span<const Share> shares, Status* statuses) {
  std::size_t work = 0;
  Arena index;
  Arena payload;
  for (const Share& share : shares) {
    const Room room = room_for(share.plan, share.room);
    work = std::max(work, workspace_bytes(share.plan, room.items, Views::dense));
    (void)index.take<std::uint64_t>(room.index_words);
    (void)payload.take<std::byte>(room.payload_bytes);
  }
  void* const workspace = slot_.workspace.ensure(work);
  index = Arena(slot_.index.ensure(index.used()));
  payload = Arena(slot_.payload.ensure(std::max<std::size_t>(payload.used(), 1)));
  messages_.clear();
  item_bytes_.clear();
  for (std::size_t s = 0; s < shares.size(); ++s) {
    const Share& share = shares[s];
    const Room room = room_for(share.plan, share.room);
    const Message message{.index = index.take<std::uint64_t>(room.index_words),
                          .index_words = room.index_words,
                          .payload = payload.take<std::byte>(room.payload_bytes),
                          .payload_bytes = room.payload_bytes};
    const Launch launch{.stream = stream_,
                        .workspace = workspace,
                        .workspace_bytes = work,
                        .status = statuses + s,
                        .items = room.items};
    messages_.push_back(message);
    item_bytes_.push_back(item_bytes(share.plan));
    if (share.plan.elements() == 0) {  // a short array has fewer tiles than owners
      require(cudaMemsetAsync(launch.status, 0, sizeof(Status), stream_), "cudaMemsetAsync");
      continue;
    }
    detail::encode(share.plan, {x.data, share.where}, message, launch);
    require(multiply_items(share.plan.type(), factor, message.payload, room.items * share.plan.grain(),
                           share.plan.grain(), launch.status, stream_),
            "Averaging");
  }
}

MessageSpan Outbox::message(std::size_t s, const Status& status) const {
  return {{reinterpret_cast<std::byte*>(messages_[s].index), index_bytes(status)},
          {messages_[s].payload, status.items * item_bytes_[s]}};
}

std::uint64_t roomy(const peel::detail::ChunkHistory& history, const Plan& plan, std::uint64_t expected) {
  if (history.steps == 0) return std::min(plan.items(), plan.items() / 8 + 1024);
  const auto many = static_cast<double>(expected);
  const double most = many * (1 + history.headroom_permille() / 1000.0) + 6 * std::sqrt(many) + 1024;
  return std::min(plan.items(), static_cast<std::uint64_t>(most));
}

bool widen(std::span<Outbox::Share> shares, const Status* statuses) {
  bool any = false;
  for (std::size_t s = 0; s < shares.size(); ++s) {
    if ((statuses[s].flags & kNoRoom) == 0) continue;
    shares[s].room = statuses[s].items;
    any = true;
  }
  return any;
}

std::size_t index_bytes(const Status& sent) { return sent.index_words * sizeof(std::uint64_t); }
std::size_t values_bytes(const Plan& plan, const Status& sent) { return sent.items * item_bytes(plan); }

void Inbox::make_room(std::span<const Plan* const> plans, std::span<const Status* const> sent) {
  const auto lay_out = [&](Arena index, Arena values) {
    spans_.clear();
    for (std::size_t i = 0; i < plans.size(); ++i) {
      const std::size_t a = index_bytes(*sent[i]);
      const std::size_t b = values_bytes(*plans[i], *sent[i]);
      spans_.push_back({{index.take<std::byte>(a), a}, {values.take<std::byte>(b), b}});
    }
    return std::pair{index.used(), values.used()};
  };
  const auto [index, values] = lay_out(Arena(), Arena());
  std::byte* const at = slot_.arrived_index.ensure(std::max<std::size_t>(index, 1));
  lay_out(Arena(at), Arena(slot_.arrived_values.ensure(std::max<std::size_t>(values, 1))));
}

namespace {

struct Lengths {
  std::size_t index = 0;
  std::size_t values = 0;
};

// The longest of messages that are so alike that all may take as much. Equal parts use all of a ring, so that an
// eighth more bytes cost less than parts of different lengths do.
std::optional<Lengths> about_even(std::span<const Plan* const> plans, std::span<const Status* const> sent) {
  constexpr std::size_t kShort = std::size_t{64} << 10;
  constexpr std::size_t kAlign = 256;
  Lengths longest;
  std::size_t sum = 0;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const Lengths own{index_bytes(*sent[i]), values_bytes(*plans[i], *sent[i])};
    longest.index = std::max(longest.index, own.index);
    longest.values = std::max(longest.values, own.values);
    sum += own.index + own.values;
  }
  if ((longest.index + longest.values) * plans.size() > sum + sum / 8 + kShort) return std::nullopt;
  return Lengths{(longest.index + kAlign - 1) / kAlign * kAlign, (longest.values + kAlign - 1) / kAlign * kAlign};
}

// The rest of what is sent is zero, so that nobody gets what was there before.
void copy_padded(std::span<std::byte> to, std::span<const std::byte> from, cudaStream_t stream) {
  if (!from.empty()) {
    require(cudaMemcpyAsync(to.data(), from.data(), from.size(), cudaMemcpyDeviceToDevice, stream), "cudaMemcpyAsync");
  }
  const std::span<std::byte> rest = to.subspan(from.size());
  if (!rest.empty()) require(cudaMemsetAsync(rest.data(), 0, rest.size(), stream), "cudaMemsetAsync");
}

}  // namespace

void Inbox::gather(std::span<const Plan* const> plans, std::span<const Status* const> sent, unsigned rank,
                   const MessageSpan& own, cudaStream_t stream, Collective& all) {
  const auto pitch = about_even(plans, sent);
  if (!pitch) {
    std::vector<const Status*> coming(sent.begin(), sent.end());
    const Status nothing;
    coming[rank] = &nothing;
    make_room(plans, coming);
    all.send = {own.index, own.values};
    for (const MessageSpan& one : spans_) {
      all.into.push_back(one.index);
      all.into.push_back(one.values);
    }
    return;
  }
  std::byte* const index = slot_.arrived_index.ensure(std::max<std::size_t>(pitch->index * plans.size(), 1));
  std::byte* const values = slot_.arrived_values.ensure(std::max<std::size_t>(pitch->values * plans.size(), 1));
  spans_.clear();
  for (std::size_t i = 0; i < plans.size(); ++i) {
    all.into.emplace_back(index + i * pitch->index, pitch->index);
    all.into.emplace_back(values + i * pitch->values, pitch->values);
    spans_.push_back(
        {all.into[2 * i].first(index_bytes(*sent[i])), all.into[2 * i + 1].first(values_bytes(*plans[i], *sent[i]))});
  }
  copy_padded(all.into[2 * rank], own.index, stream);
  copy_padded(all.into[2 * rank + 1], own.values, stream);
  all.send = {all.into[2 * rank], all.into[2 * rank + 1]};
  all.even = true;
}

void Reader::make_room(std::span<const Plan* const> plans, std::uint64_t most_items, std::size_t count) {
  pitch_ = 0;
  most_items_ = most_items;
  std::size_t scratch = 0;
  for (const Plan* plan : plans) {
    Arena arena;
    (void)OpenMessage(plan->geometry(), arena);
    pitch_ = std::max(pitch_, arena.used());
    Arena lists;
    (void)list_scratch(plan->geometry(), most_items, lists);
    scratch = std::max(scratch, lists.used());
  }
  slot_.opened.ensure(std::max<std::size_t>(pitch_ * count, 1));
  slot_.scratch.ensure(scratch);
}

AddedItems Reader::read(const Plan& plan, const MessageSpan& message, std::size_t place, Status* status) {
  const Geometry& g = plan.geometry();
  Arena arena(slot_.opened.data() + place * pitch_);
  OpenMessage open(g, arena);
  const Zeroed done{open.items.counts.done, (supers_of(g) + 1) * sizeof(std::uint32_t)};
  require(begin({}, status, std::span(&done, 1), stream_), "Reading a message");
  auto* const index = reinterpret_cast<std::uint64_t*>(message.index.data());
  const std::uint64_t words = message.index.size() / sizeof(std::uint64_t);
  const std::uint64_t* flags = open.flag_word;
  if (g.index == Index::list) {
    Arena lists(slot_.scratch.data());
    require(
        decode_list(g, index, words, list_scratch(g, most_items_, lists), open.items, open.flag_word, status, stream_),
        "Reading a list");
  } else {
    open.items.words = index;
    flags = index + words - 1;
  }
  const std::uint64_t room = message.values.size() / item_bytes(plan);
  require(count(g, open.items, flags, room, status, Recovering::none, stream_), "Counting items");
  return {.items = open.items, .values = message.values.data(), .room = room * g.grain, .status = status};
}

}  // namespace peel::cuda::detail
