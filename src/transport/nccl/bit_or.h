// OR, which NCCL does not have. A piece is cut into a slice for each worker; everybody sends everybody their slice, ORs
// what came for the own one, and the slices are gathered. A short piece goes whole to everybody instead.
#pragma once

#include "transport/nccl/job.h"

namespace peel::detail {

class BitOr final : public Job {
 public:
  BitOr(Collective& what, const NcclContext& context);

  [[nodiscard]] Next next() const noexcept override { return begun < pieces_ ? Next::piece : Next::nothing; }
  std::size_t load(const StagingSlot& slot, std::size_t piece) override;
  bool issue(const StagingSlot& slot, std::size_t piece, unsigned stage) override;
  [[nodiscard]] std::size_t result_bytes(std::size_t piece) const noexcept override { return part(piece).size(); }
  void finish(const StagingSlot& slot, std::size_t piece) override;

 private:
  [[nodiscard]] std::span<std::byte> part(std::size_t piece) const noexcept;
  bool issue_whole(const StagingSlot& slot, std::size_t bytes, unsigned stage);
  bool issue_sliced(const StagingSlot& slot, std::size_t bytes, unsigned stage);

  std::span<std::byte> data_;
  std::size_t piece_bytes_;
  std::size_t pieces_;
};

}  // namespace peel::detail
