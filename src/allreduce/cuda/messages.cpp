#include "allreduce/cuda/messages.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "allreduce/cuda/multiply.h"
#include "codec/cuda/striped.h"
#include "codec/cuda/workspace.h"
#include "codec/engine.h"
#include "items/item_message.h"

namespace peel::cuda::detail {

namespace {

// What reading a message fills: its bitmap, unless the message holds one itself, and the counts of its items.
struct OpenMessage {
  Items items;

  OpenMessage(const Geometry& g, bool is_bitmap, Arena& arena) {
    items.count = peel::detail::word_count(g);
    items.words = arena.take<std::uint64_t>(is_bitmap ? 0 : items.count);
    items.counts.tiles = arena.take<std::uint32_t>(tiles_of(g));
    items.counts.supers = arena.take<std::uint64_t>(supers_of(g));
    items.counts.done = arena.take<std::uint32_t>(supers_of(g) + 1);
  }
};

ListScratch list_scratch(std::uint64_t items, Arena& arena) {
  ListScratch scratch;
  scratch.chunks = list_chunks(items);
  scratch.lengths = arena.take<std::uint64_t>(scratch.chunks);
  scratch.starts = arena.take<std::uint64_t>(scratch.chunks);
  scratch.scan_bytes = list_scan_bytes(scratch.chunks);
  scratch.scan = arena.take<std::byte>(scratch.scan_bytes);
  return scratch;
}

std::size_t item_bytes(const Plan& plan) { return peel::detail::item_message_shape(plan).item_bytes; }
// 0 where there is no message, whose header states no length.
std::size_t index_bytes(const MessageHeader& header, std::size_t item_bytes) {
  return header.length == 0 ? 0 : peel::detail::index_words(header, item_bytes) * sizeof(std::uint64_t);
}

// All items, or none: the first `count` bits of a bitmap are set, and the others are not.
void set_first_bits(const Items& items, std::uint64_t count, cudaStream_t stream) {
  auto* const bytes = reinterpret_cast<std::byte*>(items.words);
  const std::uint64_t whole = count / 8;
  const std::uint64_t all = items.count * sizeof(std::uint64_t);
  const auto fill = [&](std::uint64_t from, std::uint64_t to, int value) {
    if (from < to) require(cudaMemsetAsync(bytes + from, value, to - from, stream), "cudaMemsetAsync");
  };
  fill(0, whole, 0xFF);
  fill(whole, all, 0);
  if (count % 8 != 0) fill(whole, whole + 1, (1 << count % 8) - 1);
}

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

MessageSpan Outbox::message(std::size_t s, const MessageHeader& header) const {
  return {{reinterpret_cast<std::byte*>(messages_[s].index), index_bytes(header, item_bytes_[s])},
          {messages_[s].payload, header.items * item_bytes_[s]}};
}

MessageFacts facts_of(const Outbox::Share& share) {
  return {.positions = share.plan.items(),
          .item_bytes = item_bytes(share.plan),
          .workers = share.workers,
          .index = peel::detail::header_index(share.plan.index())};
}

std::uint64_t roomy(const peel::detail::ChunkHistory& history, const Plan& plan, std::uint64_t expected) {
  if (history.steps == 0) return std::min(plan.items(), plan.items() / 8 + 1024);
  const auto many = static_cast<double>(expected);
  const double most = many * (1 + history.headroom_permille() / 1000.0) + 6 * std::sqrt(many) + 1024;
  return std::min(plan.items(), static_cast<std::uint64_t>(most));
}

bool widen(std::span<Outbox::Share> shares, const MessageHeader* headers) {
  bool any = false;
  for (std::size_t s = 0; s < shares.size(); ++s) {
    if ((headers[s].flags & MessageHeader::kNoRoom) == 0) continue;
    shares[s].room = headers[s].items;
    any = true;
  }
  return any;
}

void Inbox::make_room(std::span<const MessageHeader> sent, std::size_t item_bytes) {
  const auto lay_out = [&](Arena index, Arena values) {
    spans_.clear();
    for (const MessageHeader& one : sent) {
      const std::size_t a = index_bytes(one, item_bytes);
      const std::size_t b = one.items * item_bytes;
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
std::optional<Lengths> about_even(std::span<const MessageHeader> sent, std::size_t item_bytes) {
  constexpr std::size_t kShort = std::size_t{64} << 10;
  constexpr std::size_t kAlign = 256;
  Lengths longest;
  std::size_t sum = 0;
  for (const MessageHeader& one : sent) {
    const Lengths own{index_bytes(one, item_bytes), one.items * item_bytes};
    longest.index = std::max(longest.index, own.index);
    longest.values = std::max(longest.values, own.values);
    sum += own.index + own.values;
  }
  if ((longest.index + longest.values) * sent.size() > sum + sum / 8 + kShort) return std::nullopt;
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

void Inbox::gather(std::span<const MessageHeader> sent, std::size_t item_bytes, unsigned rank, const MessageSpan& own,
                   cudaStream_t stream, Collective& all) {
  const auto pitch = about_even(sent, item_bytes);
  if (!pitch) {
    std::vector<MessageHeader> coming(sent.begin(), sent.end());
    coming[rank] = {};
    make_room(coming, item_bytes);
    all.send = {own.index, own.values};
    for (const MessageSpan& one : spans_) {
      all.into.push_back(one.index);
      all.into.push_back(one.values);
    }
    return;
  }
  std::byte* const index = slot_.arrived_index.ensure(std::max<std::size_t>(pitch->index * sent.size(), 1));
  std::byte* const values = slot_.arrived_values.ensure(std::max<std::size_t>(pitch->values * sent.size(), 1));
  spans_.clear();
  for (std::size_t i = 0; i < sent.size(); ++i) {
    all.into.emplace_back(index + i * pitch->index, pitch->index);
    all.into.emplace_back(values + i * pitch->values, pitch->values);
    spans_.push_back({all.into[2 * i].first(index_bytes(sent[i], item_bytes)),
                      all.into[2 * i + 1].first(sent[i].items * item_bytes)});
  }
  copy_padded(all.into[2 * rank], own.index, stream);
  copy_padded(all.into[2 * rank + 1], own.values, stream);
  all.send = {all.into[2 * rank], all.into[2 * rank + 1]};
  all.even = true;
}

Piece piece_of(const Outbox::Share& share, std::uint64_t first, std::uint64_t tiles) {
  Piece piece{share.plan.geometry(), share.where, {}};
  Geometry& g = piece.g;
  const std::uint64_t positions = g.elements + g.lead;
  const std::uint64_t begin = std::min(first * kTilePositions, positions);
  const std::uint64_t end = std::min((first + tiles) * kTilePositions, positions);
  if (first != 0) g.lead = 0;
  g.elements = end - begin - g.lead;
  piece.items.first = begin >> g.grain_log2;
  piece.items.count = ((end - begin) + g.grain - 1) >> g.grain_log2;
  g.items = piece.items.count;
  piece.where.first += static_cast<std::uint32_t>(first * piece.where.step);
  return piece;
}

Piece all_of(const Outbox::Share& share) { return piece_of(share, 0, tiles_of(share.plan.geometry())); }

bool all_bitmaps(std::span<const MessageHeader> headers) {
  return std::all_of(headers.begin(), headers.end(),
                     [](const MessageHeader& one) { return one.index == MessageHeader::Index::bitmap; });
}

void Reader::make_room(std::span<const Piece> pieces, std::span<const MessageHeader> headers, std::size_t count) {
  pitch_ = 0;
  most_items_ = 0;
  all_bitmaps_ = all_bitmaps(headers);
  for (const MessageHeader& one : headers) most_items_ = std::max(most_items_, one.items);
  for (const Piece& piece : pieces) {
    Arena arena;
    (void)OpenMessage(piece.g, all_bitmaps_, arena);
    pitch_ = std::max(pitch_, arena.used());
  }
  slot_.opened.ensure(std::max<std::size_t>(pitch_ * count, 1));
  Arena lists;
  (void)list_scratch(most_items_, lists);
  slot_.scratch.ensure(lists.used());
}

AddedItems Reader::read(const Outbox::Share& share, const Piece& piece, const MessageHeader& header,
                        const MessageSpan& message, std::size_t place, Status* status) {
  const Geometry& g = piece.g;
  Arena arena(slot_.opened.data() + place * pitch_);
  OpenMessage open(g, all_bitmaps_, arena);
  const Zeroed done{open.items.counts.done, (supers_of(g) + 1) * sizeof(std::uint32_t)};
  require(begin({}, status, std::span(&done, 1), stream_), "Reading a message");
  auto* const index = reinterpret_cast<std::uint64_t*>(message.index.data());
  switch (header.index) {
    case MessageHeader::Index::bitmap:
      open.items.words = index + piece.items.first / 64;
      break;
    case MessageHeader::Index::list: {
      Arena lists(slot_.scratch.data());
      require(decode_list(share.plan.geometry(), piece.items, index, message.index.size() / sizeof(std::uint64_t),
                          list_scratch(most_items_, lists), open.items, nullptr, status, stream_),
              "Reading a list");
      break;
    }
    default:
      set_first_bits(open.items, header.items == 0 ? 0 : piece.items.count, stream_);
  }
  require(count(g, open.items, nullptr, header.items, status, Recovering::none, stream_), "Counting items");
  return {.items = open.items, .values = message.values.data(), .room = header.items * g.grain, .status = status};
}

}  // namespace peel::cuda::detail
