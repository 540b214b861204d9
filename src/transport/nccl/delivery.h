// all_to_all and all_gather of buffers whose lengths only their senders know.
//
// NCCL must be told how much it receives. So the first piece carries the lengths: a word to each worker, always. Only
// when they have arrived can the data follow, in rounds; a round carries at most a share of a slot between two workers.
// Both of a pair know how many rounds they have with each other, and need not know of others.
#pragma once

#include <vector>

#include "transport/nccl/job.h"

namespace peel::detail {

class Delivery final : public Job {
 public:
  Delivery(Collective& what, const NcclContext& context);

  [[nodiscard]] Next next() const noexcept override;
  std::size_t load(const StagingSlot& slot, std::size_t piece) override;
  bool issue(const StagingSlot& slot, std::size_t piece, unsigned stage) override;
  [[nodiscard]] std::size_t result_bytes(std::size_t piece) const noexcept override;
  void finish(const StagingSlot& slot, std::size_t piece) override;

 private:
  [[nodiscard]] bool gathers() const noexcept { return what_.kind == Collective::Kind::all_gather; }
  [[nodiscard]] std::span<const std::byte> sent_to(unsigned worker) const noexcept;
  [[nodiscard]] std::size_t share_of(std::size_t length, std::size_t round) const noexcept;

  std::size_t load_lengths(const StagingSlot& slot);
  std::size_t load_round(const StagingSlot& slot, std::size_t round);
  void send_lengths(const StagingSlot& slot);
  void send_round(const StagingSlot& slot, std::size_t round);
  void take_lengths(const StagingSlot& slot);

  Collective& what_;
  std::size_t share_;
  bool lengths_known_ = false;
  std::size_t rounds_ = 0;
};

}  // namespace peel::detail
