// What split and gather do on a device: messages of shares go out with their lengths first, since a receiver must know
// them; everybody's are added in rank order, where they belong in the array.
#include <algorithm>
#include <vector>

#include "allreduce/cuda/device_place.h"
#include "allreduce/cuda/lengths.h"
#include "codec/cuda/interpretation.h"
#include "peel/error.h"

namespace peel::cuda::detail {

namespace {

const Status kNothing;  // of a message that is not sent

bool is_split(const Chunk& chunk) { return chunk.choice.strategy == Strategy::split; }

// Of one share, or of the whole array, where that is known.
std::uint64_t expected_items(const Chunk& chunk, std::uint64_t known) {
  const std::uint64_t items = chunk.history.steps == 0 ? chunk.choice.plan.items() : known;
  return is_split(chunk) ? items / chunk.world.size + 1 : items;
}

bool lack_room(std::span<const Status> statuses) {
  return std::any_of(statuses.begin(), statuses.end(),
                     [](const Status& one) { return (one.flags & (kNoRoom | kSomeNoRoom)) != 0; });
}

[[noreturn]] void damaged() {
  throw Error(ErrorCode::corrupt_message,
              "Items from another worker arrived damaged; check that all workers run the same version, and the "
              "network.");
}

// Throw corrupt_message if what a worker says of its message cannot be, or the message was damaged on its way.
void check_sent(const Plan& plan, const Status& sent) {
  if (sent.items > plan.items()) damaged();
  if (plan.elements() == 0) {
    if (sent.index_words != 0) damaged();
    return;
  }
  const std::uint64_t most = room_for(plan, sent.items).index_words;
  if (sent.index_words > most || (plan.index() != Index::list && sent.index_words != most)) damaged();
}
void check_arrived(const Status& sent, const Status& opened) {
  if (opened.flags != 0 || opened.items != sent.items) damaged();
}

}  // namespace

std::size_t DevicePlace::own_share(const Chunk& chunk) const { return is_split(chunk) ? chunk.world.rank : 0; }

MessageSpan DevicePlace::own_message(const Chunk& chunk) const {
  const Status* const own = is_split(chunk) ? on_host().leaving : on_host().sent;
  return outbox_->message(own_share(chunk), own[chunk.world.rank]);
}

// Of the items that each worker sends this one.
std::vector<const Status*> DevicePlace::arriving(const Chunk& chunk) const {
  std::vector<const Status*> statuses;
  for (unsigned w = 0; w < chunk.world.size; ++w) statuses.push_back(on_host().sent + w);
  return statuses;
}

Collective& DevicePlace::request_statuses(Chunk& chunk, Requests& requests, Status* Numbers::*statuses, unsigned each) {
  Collective& lengths = request(chunk, Collective::Kind::all_gather, requests);
  const auto of = [&](unsigned w) {
    return std::span(reinterpret_cast<std::byte*>(on_device().*statuses + w * each), each * sizeof(Status));
  };
  lengths.send.assign(1, of(chunk.world.rank));
  for (unsigned w = 0; w < chunk.world.size; ++w) lengths.into.push_back(of(w));
  lengths.fetch.push_back(fetch_of(statuses, std::uint64_t{chunk.world.size} * each));
  return lengths;
}

void DevicePlace::gather_messages(Chunk& chunk, Requests& requests, std::span<const Plan* const> plans,
                                  std::span<const Status* const> sent, const MessageSpan& own) {
  inbox_->gather(plans, sent, chunk.world.rank, own, stream(), request(chunk, Collective::Kind::all_gather, requests));
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
      if (is_split(chunk)) sums_.push_back(share(w, expected_items(chunk, chunk.history.items)));
    }
    outbox_.emplace(slot_of(chunk), stream());
    inbox_.emplace(slot_of(chunk));
  }
  Status* const statuses = is_split(chunk) ? on_device().leaving : on_device().sent + chunk.world.rank;
  outbox_->encode(chunk.view.dense(), chunk.view.factor(), shares_, statuses);
}

void DevicePlace::request_lengths(Chunk& chunk, Requests& requests) {
  if (!is_split(chunk)) {
    (void)request_statuses(chunk, requests, &Numbers::sent, 1);
    return;
  }
  const unsigned workers = chunk.world.size;
  const unsigned rank = chunk.world.rank;
  require(post_lengths(on_device().leaving, workers, rank, on_device().sent, stream()), "Posting lengths");
  Collective& lengths = request(chunk, Collective::Kind::all_to_all, requests);
  const auto piece = [&](Status* of, unsigned w) {
    return std::span(reinterpret_cast<std::byte*>(of + w), w == rank ? 0 : sizeof(Status));
  };
  for (unsigned w = 0; w < workers; ++w) {
    lengths.send.push_back(piece(on_device().leaving, w));
    lengths.into.push_back(piece(on_device().sent, w));
  }
  lengths.fetch = {fetch_of(&Numbers::leaving, workers), fetch_of(&Numbers::sent, workers)};
}

bool DevicePlace::fits(Chunk& chunk, Requests& requests) {
  if (lack_room({on_host().sent, chunk.world.size})) {
    const Status* const own = is_split(chunk) ? on_host().leaving : on_host().sent + chunk.world.rank;
    if (widen(shares_, own)) {
      const auto timed = timing(chunk, &Report::encode_s, "peel encode again");
      encode_items(chunk);
    }
    request_lengths(chunk, requests);
    return false;
  }
  const Plan& plan = shares_[own_share(chunk)].plan;
  for (const Status* one : arriving(chunk)) check_sent(plan, *one);
  return true;
}

void DevicePlace::request_items(Chunk& chunk, Requests& requests) {
  const unsigned workers = chunk.world.size;
  const unsigned rank = chunk.world.rank;
  std::vector<const Status*> coming = arriving(chunk);
  const std::vector<const Plan*> plans(workers, &shares_[own_share(chunk)].plan);
  if (!is_split(chunk)) return gather_messages(chunk, requests, plans, coming, own_message(chunk));
  coming[rank] = &kNothing;
  inbox_->make_room(plans, coming);
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
  const unsigned rank = chunk.world.rank;
  const Outbox::Share& share = shares_[own_share(chunk)];
  Status* const sums = on_device().sums + (is_split(chunk) ? 2 * rank : 0);
  if (!is_split(chunk)) {
    fetch(&Numbers::opened, workers);
    fetch(&Numbers::sums, 1);
  } else if (share.plan.elements() == 0) {
    return;
  }
  std::uint64_t most = 0;
  for (const Status* one : arriving(chunk)) most = std::max(most, one->items);
  Reader reader(slot_of(chunk), stream());
  const Plan* const plans[] = {&share.plan};
  reader.make_room(plans, most, workers);
  for (unsigned w = 0; w < workers; ++w) {
    const MessageSpan message = w == rank ? own_message(chunk) : inbox_->message(w);
    on_host().sources[w] = reader.read(share.plan, message, w, on_device().opened + w);
  }
  require(cudaMemcpyAsync(on_device().sources, on_host().sources, workers * sizeof(AddedItems), cudaMemcpyHostToDevice,
                          stream()),
          "cudaMemcpyAsync");
  require(add_sources(share.plan.geometry(), on_device().sources, workers, chunk.view.dense().data, share.where, sums,
                      stream()),
          "Adding items");
}

void DevicePlace::encode_sums(Chunk& chunk) {
  const unsigned rank = chunk.world.rank;
  outbox_->encode(chunk.view.dense(), 1, std::span(sums_).subspan(rank, 1), on_device().sums + 2 * rank + 1);
}

void DevicePlace::request_sum_lengths(Chunk& chunk, Requests& requests) {
  request_statuses(chunk, requests, &Numbers::sums, 2).fetch.push_back(fetch_of(&Numbers::opened, chunk.world.size));
}

bool DevicePlace::sums_fit(Chunk& chunk, Requests& requests) {
  const unsigned workers = chunk.world.size;
  const unsigned rank = chunk.world.rank;
  const Status* const sums = on_host().sums;
  for (unsigned w = 0; w < workers && shares_[rank].plan.elements() != 0; ++w) {
    check_arrived(on_host().sent[w], on_host().opened[w]);
  }
  if (lack_room({sums, std::size_t{2} * workers})) {
    if (widen(std::span(sums_).subspan(rank, 1), sums + 2 * rank + 1)) encode_sums(chunk);
    request_sum_lengths(chunk, requests);
    return false;
  }
  for (unsigned w = 0; w < workers; ++w) check_sent(sums_[w].plan, sums[2 * w + 1]);
  return true;
}

void DevicePlace::request_sums(Chunk& chunk, Requests& requests) {
  const unsigned rank = chunk.world.rank;
  const Status* const sums = on_host().sums;
  std::vector<const Status*> sent;
  std::vector<const Plan*> plans;
  for (unsigned w = 0; w < chunk.world.size; ++w) {
    sent.push_back(sums + 2 * w + 1);
    plans.push_back(&sums_[w].plan);
  }
  gather_messages(chunk, requests, plans, sent, outbox_->message(0, sums[2 * rank + 1]));
}

// Everybody writes the shares of the others.
void DevicePlace::write_sums(Chunk& chunk) {
  const unsigned workers = chunk.world.size;
  std::uint64_t most = 0;
  std::vector<const Plan*> plans;
  for (unsigned w = 0; w < workers; ++w) {
    most = std::max(most, on_host().sums[2 * w + 1].items);
    plans.push_back(&sums_[w].plan);
  }
  Reader reader(slot_of(chunk), stream());
  reader.make_room(plans, most, 1);
  for (unsigned w = 0; w < workers; ++w) {
    const Plan& plan = sums_[w].plan;
    if (w == chunk.world.rank || plan.elements() == 0) continue;
    const AddedItems read = reader.read(plan, inbox_->message(w), 0, on_device().opened + w);
    require(expand(plan.geometry(), plain(plan.geometry()), read.items, read.values, read.room, chunk.view.dense().data,
                   sums_[w].where, on_device().opened + w, stream()),
            "Writing sums");
  }
  fetch(&Numbers::opened, workers);
}

ItemCounts DevicePlace::item_counts(Chunk& chunk) {
  const unsigned workers = chunk.world.size;
  ItemCounts counts;
  if (!is_split(chunk)) counts.items = on_host().sums[0].items;
  for (unsigned w = 0; w < workers; ++w) {
    if (!is_split(chunk)) {
      check_arrived(on_host().sent[w], on_host().opened[w]);
      counts.added += on_host().sent[w].items;
      continue;
    }
    if (w != chunk.world.rank && sums_[w].plan.elements() != 0) {
      check_arrived(on_host().sums[2 * w + 1], on_host().opened[w]);
    }
    counts.items += on_host().sums[2 * w].items;
    counts.added += on_host().sums[2 * w].recovered;
  }
  return counts;
}

}  // namespace peel::cuda::detail
