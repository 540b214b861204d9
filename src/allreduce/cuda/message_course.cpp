#include "allreduce/cuda/message_course.h"

#include <algorithm>
#include <vector>

#include "allreduce/cuda/lengths.h"

namespace peel::cuda::detail {

Collective& MessageCourse::ask_lengths(Chunk& chunk, Asks& asks, Status* Numbers::*statuses, unsigned each) {
  Collective& lengths = ask(chunk, Collective::Kind::all_gather, asks);
  const auto of = [&](unsigned w) {
    return std::span(reinterpret_cast<std::byte*>(there().*statuses + w * each), each * sizeof(Status));
  };
  lengths.send.assign(1, of(chunk.world.rank));
  for (unsigned w = 0; w < chunk.world.size; ++w) lengths.into.push_back(of(w));
  fetch(lengths, statuses, std::uint64_t{chunk.world.size} * each);
  return lengths;
}

bool MessageCourse::lack_room(std::span<const Status> statuses) {
  return std::any_of(statuses.begin(), statuses.end(),
                     [](const Status& one) { return (one.flags & (kNoRoom | kSomeNoRoom)) != 0; });
}

void MessageCourse::gather_messages(Chunk& chunk, Asks& asks, std::span<const Plan* const> plans,
                                    std::span<const Status* const> sent, const Lying& own) {
  inbox_->gather(plans, sent, chunk.world.rank, own, stream(), ask(chunk, Collective::Kind::all_gather, asks));
}

void MessageCourse::add_messages(Chunk& chunk, const Outbox::Share& share, std::span<const Status* const> sent,
                                 const Lying& own, Status* sums) {
  const unsigned workers = chunk.world.size;
  std::uint64_t most = 0;
  for (const Status* one : sent) most = std::max(most, one->items);
  Reader reader(slot_of(chunk), stream());
  const Plan* const plans[] = {&share.plan};
  reader.make_room(plans, most, workers);
  for (unsigned w = 0; w < workers; ++w) {
    const Lying& message = w == chunk.world.rank ? own : inbox_->message(w);
    here().sources[w] = reader.read(share.plan, message, w, there().opened + w);
  }
  require(
      cudaMemcpyAsync(there().sources, here().sources, workers * sizeof(AddedItems), cudaMemcpyHostToDevice, stream()),
      "cudaMemcpyAsync");
  require(add_sources(share.plan.geometry(), there().sources, workers, chunk.view.dense().data, share.where, sums,
                      stream()),
          "Adding items");
}

void MessageCourse::finish_sums(Chunk& chunk, Asks& asks, std::uint64_t items, std::uint64_t added) {
  report_exactness(chunk.report, Exactness::rounded_once);
  chunk.report.items += items;
  chunk.report.union_elements += items * chunk.choice.plan.grain();
  chunk.history.learn(items, (added + chunk.world.size - 1) / chunk.world.size);
  look_for_grain(chunk, asks);
}

}  // namespace peel::cuda::detail
