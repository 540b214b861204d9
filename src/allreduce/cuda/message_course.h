// What gather and split on a device share: messages of shares go out with their lengths first, everybody's are added in
// rank order, and what was learned is noted.
#pragma once

#include <optional>
#include <span>

#include "allreduce/cuda/gpu_course.h"
#include "allreduce/cuda/messages.h"

namespace peel::cuda::detail {

class MessageCourse : public GpuCourse {
 public:
  using GpuCourse::GpuCourse;

 protected:
  // Everybody gets everybody's statuses, `each` of them, since all must know whether somebody had too little room.
  Collective& ask_lengths(Chunk& chunk, Asks& asks, Status* Numbers::*statuses, unsigned each);
  static bool lack_room(std::span<const Status> statuses);

  // Asks for the messages of all workers, plans[w] and sent[w] of worker w. The own one stays where it was encoded.
  void gather_messages(Chunk& chunk, Asks& asks, std::span<const Plan* const> plans,
                       std::span<const Status* const> sent, const Lying& own);

  // Reads the messages of one share, sent[w] from worker w, and writes their sums; the own one is `own`.
  void add_messages(Chunk& chunk, const Outbox::Share& share, std::span<const Status* const> sent, const Lying& own,
                    Status* sums);

  // The last step: `items` in the union, `added` of all workers.
  void finish_sums(Chunk& chunk, Asks& asks, std::uint64_t items, std::uint64_t added);

  std::optional<Outbox> outbox_;
  std::optional<Inbox> inbox_;
  const Status nothing_;  // of a message that is not sent
};

}  // namespace peel::cuda::detail
