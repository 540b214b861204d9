// What split and gather do on a device: the headers of item messages go first, since a receiver must know how long they
// are; everybody's items are added in rank order, where they belong in the array.
#include <algorithm>
#include <utility>
#include <vector>

#include "allreduce/cuda/device_place.h"
#include "codec/cuda/interpretation.h"
#include "codec/cuda/workspace.h"
#include "items/item_message.h"
#include "peel/error.h"

namespace peel::cuda::detail {

using peel::detail::item_message_shape;
using peel::detail::ItemMessageShape;
using peel::detail::refuse_damaged_items;

namespace {

bool is_split(const Chunk& chunk) { return chunk.choice.strategy == Strategy::split; }

// The items of one share where each worker owns one, else those of the whole array.
std::uint64_t expected_items(const Chunk& chunk, std::uint64_t known) {
  const std::uint64_t items = chunk.history.steps == 0 ? chunk.choice.plan.items() : known;
  return is_split(chunk) ? items / chunk.world.size + 1 : items;
}

bool lack_room(std::span<const MessageHeader> headers) {
  constexpr std::uint64_t kLacking = MessageHeader::kNoRoom | MessageHeader::kSomeHasNoRoom;
  return std::any_of(headers.begin(), headers.end(),
                     [](const MessageHeader& one) { return (one.flags & kLacking) != 0; });
}

std::size_t item_bytes(const Chunk& chunk) { return item_message_shape(chunk.choice.plan).item_bytes; }

// Throw corrupt_message if what a worker says of its message cannot be, or the message was damaged on its way. Where it
// had too little room, there is only the header.
void check_sent(const Outbox::Share& share, const MessageHeader& sent) {
  ItemMessageShape shape = item_message_shape(share.plan);
  shape.workers = share.workers;
  MessageHeader plain = sent;
  plain.flags &= static_cast<std::uint8_t>(~MessageHeader::kSomeHasNoRoom);
  if (plain.flags == MessageHeader::kNoRoom && sent.items <= shape.positions) {
    plain.flags = 0;
    plain.items = 0;
  }
  if (!is_sound(plain, shape)) refuse_damaged_items();
  if (sent.index != MessageHeader::Index::list) return;
  const std::uint64_t most = most_list_words(share.plan.geometry(), sent.items);
  if (peel::detail::index_words(sent, shape.item_bytes) > most) refuse_damaged_items();
}
void check_arrived(const MessageHeader& sent, const Status& opened) {
  if (opened.flags != 0 || opened.items != sent.items) refuse_damaged_items();
}

// The headers say how much room it takes, so nobody lacks it twice.
void note_repeat(bool& repeated) {
  if (repeated) {
    throw Error(
        ErrorCode::corrupt_message,
        "A worker asked for more room twice; check that nothing writes to the array before its sum is there, and "
        "that all workers run the same version.");
  }
  repeated = true;
}

}  // namespace

std::size_t DevicePlace::own_share(const Chunk& chunk) const { return is_split(chunk) ? chunk.world.rank : 0; }

MessageSpan DevicePlace::own_message(const Chunk& chunk) const {
  return outbox_->message(own_share(chunk), arriving(chunk)[chunk.world.rank]);
}

std::vector<MessageHeader> DevicePlace::arriving(const Chunk& chunk) const {
  std::vector<MessageHeader> headers(on_host().sent, on_host().sent + chunk.world.size);
  if (is_split(chunk)) headers[chunk.world.rank] = on_host().leaving[chunk.world.rank];
  return headers;
}

void DevicePlace::write_headers(std::span<const Outbox::Share> shares, const Status* added, MessageHeader* headers) {
  std::transform(shares.begin(), shares.end(), on_host().facts, facts_of);
  require(cudaMemcpyAsync(on_device().facts, on_host().facts, shares.size() * sizeof(MessageFacts),
                          cudaMemcpyHostToDevice, stream()),
          "cudaMemcpyAsync");
  require(detail::write_headers(on_device().facts, on_device().encoded, static_cast<unsigned>(shares.size()), added,
                                headers, stream()),
          "Writing headers");
}

void DevicePlace::gather_headers(Chunk& chunk, Requests& requests, MessageHeader* Numbers::*headers) {
  Collective& all = request(chunk, Collective::Kind::all_gather, requests);
  const auto of = [&](unsigned w) {
    return std::span(reinterpret_cast<std::byte*>(on_device().*headers + w), sizeof(MessageHeader));
  };
  all.send.assign(1, of(chunk.world.rank));
  for (unsigned w = 0; w < chunk.world.size; ++w) all.into.push_back(of(w));
  all.fetch = std::exchange(fetches_, {});
  all.fetch.push_back(fetch_of(headers, chunk.world.size));
}

// ---- items to their owners

void DevicePlace::encode_items(Chunk& chunk) {
  if (shares_.empty()) {
    const unsigned owners = is_split(chunk) ? chunk.world.size : 1;
    const Shares all(chunk.choice.plan, owners);
    const auto share = [&](unsigned owner, std::uint64_t items) {
      const Plan plan = all.plan(owner, items);
      return Outbox::Share{plan, all.stripes(owner), roomy(chunk.history, plan, items)};
    };
    for (unsigned w = 0; w < owners; ++w) {
      shares_.push_back(share(w, expected_items(chunk, chunk.history.own_items)));
      if (!is_split(chunk)) continue;
      sums_.push_back(share(w, expected_items(chunk, chunk.history.items)));
      sums_.back().workers = chunk.world.size;
    }
    outbox_.emplace(slot_of(chunk), stream());
    inbox_.emplace(slot_of(chunk));
  }
  outbox_->encode(chunk.view.dense(), chunk.view.factor(), shares_, on_device().encoded);
  write_headers(shares_, nullptr, is_split(chunk) ? on_device().leaving : on_device().sent + chunk.world.rank);
}

void DevicePlace::request_lengths(Chunk& chunk, Requests& requests) {
  if (!is_split(chunk)) return gather_headers(chunk, requests, &Numbers::sent);
  const unsigned workers = chunk.world.size;
  Collective& lengths = request(chunk, Collective::Kind::all_to_all, requests);
  const auto piece = [&](MessageHeader* of, unsigned w) {
    return std::span(reinterpret_cast<std::byte*>(of + w), w == chunk.world.rank ? 0 : sizeof(MessageHeader));
  };
  for (unsigned w = 0; w < workers; ++w) {
    lengths.send.push_back(piece(on_device().leaving, w));
    lengths.into.push_back(piece(on_device().sent, w));
  }
  lengths.fetch = {fetch_of(&Numbers::leaving, workers), fetch_of(&Numbers::sent, workers)};
}

bool DevicePlace::fits(Chunk& chunk, Requests& requests) {
  const std::vector<MessageHeader> headers = arriving(chunk);
  for (const MessageHeader& one : headers) check_sent(shares_[own_share(chunk)], one);
  if (lack_room(headers)) {
    note_repeat(items_repeated_);
    if (widen(shares_, is_split(chunk) ? on_host().leaving : on_host().sent + chunk.world.rank)) {
      const auto timing = this->timing(chunk, &Report::encode_s, "peel encode again");
      encode_items(chunk);
    }
    request_lengths(chunk, requests);
    return false;
  }
  return true;
}

void DevicePlace::request_items(Chunk& chunk, Requests& requests) {
  const unsigned workers = chunk.world.size;
  const unsigned rank = chunk.world.rank;
  std::vector<MessageHeader> coming = arriving(chunk);
  if (!is_split(chunk)) {
    Collective& all = request(chunk, Collective::Kind::all_gather, requests);
    return inbox_->gather(coming, item_bytes(chunk), rank, own_message(chunk), stream(), all);
  }
  coming[rank] = {};  // it stays
  inbox_->make_room(coming, item_bytes(chunk));
  Collective& items = request(chunk, Collective::Kind::all_to_all, requests);
  for (unsigned w = 0; w < workers; ++w) {
    const MessageSpan leaving = w == rank ? MessageSpan{} : outbox_->message(w, on_host().leaving[w]);
    items.send.push_back(leaving.index);
    items.send.push_back(leaving.values);
    items.into.push_back(inbox_->message(w).index);
    items.into.push_back(inbox_->message(w).values);
  }
}

// ---- owners add, and the sums to everybody

// The sums of the own share, or of all, are written where they belong in the array.
void DevicePlace::add_items(Chunk& chunk) {
  const unsigned workers = chunk.world.size;
  const Outbox::Share& share = shares_[own_share(chunk)];
  fetch(&Numbers::read, std::uint64_t{2} * workers);
  fetch(&Numbers::added, 1);
  if (share.plan.elements() == 0) return;
  const std::vector<MessageHeader> headers = arriving(chunk);
  const std::uint64_t tiles = tiles_of(share.plan.geometry());
  const std::uint64_t pieces =
      all_bitmaps(headers) ? 1  // which are read where they lie
                           : peel::detail::pieces_to_open(share.plan.items(), workers, chunk.choice.plan.dense_bytes());
  const std::uint64_t each = (tiles + pieces * kPieceTiles - 1) / (pieces * kPieceTiles) * kPieceTiles;
  Reader reader(slot_of(chunk), stream());
  const Piece largest[] = {piece_of(share, 0, each)};
  reader.make_room(largest, headers, workers);
  for (std::uint64_t first = 0; first < tiles; first += each, ++pieces_read_) {
    const Piece piece = piece_of(share, first, each);
    Status* const before = on_device().read + (pieces_read_ % 2) * workers;
    Status* const after = on_device().read + (pieces_read_ + 1) % 2 * workers;
    AddedItems* const sources = on_host().sources + pieces_read_ * workers;
    for (unsigned w = 0; w < workers; ++w) {
      const MessageSpan message = w == chunk.world.rank ? own_message(chunk) : inbox_->message(w);
      sources[w] = reader.read(share, piece, headers[w], message, w, on_device().opened + w);
      sources[w].before = before + w;
      sources[w].after = after + w;
    }
    AddedItems* const sent = on_device().sources + pieces_read_ * workers;
    require(cudaMemcpyAsync(sent, sources, workers * sizeof(AddedItems), cudaMemcpyHostToDevice, stream()),
            "cudaMemcpyAsync");
    require(add_sources(piece.g, sent, workers, chunk.view.dense().data, piece.where, on_device().added, stream()),
            "Adding items");
  }
}

// Throws where what arrived is not what its headers said.
void DevicePlace::check_read(const Chunk& chunk) const {
  const std::vector<MessageHeader> headers = arriving(chunk);
  const Status* const read = on_host().read + pieces_read_ % 2 * chunk.world.size;
  for (unsigned w = 0; w < chunk.world.size; ++w) check_arrived(headers[w], read[w]);
}

void DevicePlace::encode_sums(Chunk& chunk) {
  const std::span<const Outbox::Share> own = std::span(sums_).subspan(chunk.world.rank, 1);
  outbox_->encode(chunk.view.dense(), 1, own, on_device().encoded);
  write_headers(own, on_device().added, on_device().sums + chunk.world.rank);
}

void DevicePlace::request_sum_lengths(Chunk& chunk, Requests& requests) {
  gather_headers(chunk, requests, &Numbers::sums);
}

bool DevicePlace::sums_fit(Chunk& chunk, Requests& requests) {
  const unsigned workers = chunk.world.size;
  const unsigned rank = chunk.world.rank;
  const MessageHeader* const sums = on_host().sums;
  if (shares_[rank].plan.elements() != 0) check_read(chunk);
  for (unsigned w = 0; w < workers; ++w) check_sent(sums_[w], sums[w]);
  if (lack_room({sums, workers})) {
    note_repeat(sums_repeated_);
    if (widen(std::span(sums_).subspan(rank, 1), sums + rank)) encode_sums(chunk);
    request_sum_lengths(chunk, requests);
    return false;
  }
  return true;
}

void DevicePlace::request_sums(Chunk& chunk, Requests& requests) {
  const std::span<const MessageHeader> sums(on_host().sums, chunk.world.size);
  Collective& all = request(chunk, Collective::Kind::all_gather, requests);
  inbox_->gather(sums, item_bytes(chunk), chunk.world.rank, outbox_->message(0, sums[chunk.world.rank]), stream(), all);
}

// Everybody writes the shares of the others.
void DevicePlace::write_sums(Chunk& chunk) {
  const unsigned workers = chunk.world.size;
  const std::span<const MessageHeader> sums(on_host().sums, workers);
  std::vector<Piece> wholes;
  for (const Outbox::Share& share : sums_) wholes.push_back(all_of(share));
  Reader reader(slot_of(chunk), stream());
  reader.make_room(wholes, sums, 1);
  for (unsigned w = 0; w < workers; ++w) {
    const Geometry& g = wholes[w].g;
    if (w == chunk.world.rank || g.elements == 0) continue;
    const AddedItems read = reader.read(sums_[w], wholes[w], sums[w], inbox_->message(w), 0, on_device().opened + w);
    require(expand(g, plain(g), read.items, read.values, read.room, chunk.view.dense().data, sums_[w].where,
                   on_device().opened + w, stream()),
            "Writing sums");
  }
  fetch(&Numbers::opened, workers);
}

ItemCounts DevicePlace::item_counts(Chunk& chunk) {
  const unsigned workers = chunk.world.size;
  if (!is_split(chunk)) {
    check_read(chunk);
    return {.items = on_host().added->items, .added = on_host().added->recovered};
  }
  ItemCounts counts;
  for (unsigned w = 0; w < workers; ++w) {
    const MessageHeader& sums = on_host().sums[w];
    if (w != chunk.world.rank && sums_[w].plan.elements() != 0) check_arrived(sums, on_host().opened[w]);
    counts.items += sums.items;
    counts.added += sums.count;
  }
  return counts;
}

}  // namespace peel::cuda::detail
