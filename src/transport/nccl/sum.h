// SUM: ncclAllReduce of one piece after another.
#pragma once

#include "transport/nccl/job.h"

namespace peel::detail {

class Sum final : public Job {
 public:
  Sum(Collective& what, const NcclContext& context);

  [[nodiscard]] Next next() const noexcept override { return begun < pieces_ ? Next::piece : Next::nothing; }
  std::size_t load(const StagingSlot& slot, std::size_t piece) override;
  bool issue(const StagingSlot& slot, std::size_t piece, unsigned stage) override;
  [[nodiscard]] std::size_t result_bytes(std::size_t piece) const noexcept override;
  void finish(const StagingSlot& slot, std::size_t piece) override;

 private:
  // Of the array, what passes as this piece.
  [[nodiscard]] std::span<std::byte> part(std::size_t piece) const noexcept;
  [[nodiscard]] std::size_t count(std::size_t piece) const noexcept { return part(piece).size() / size_of(type_); }

  std::span<std::byte> data_;
  ElementType type_;
  std::size_t piece_bytes_;
  std::size_t pieces_;
};

}  // namespace peel::detail
