// What an exchange sums: where its values come from and where the sums go to. A dense array, in host or device memory,
// is summed in place; a sparse one is read, and its sum is another; of a scattered one each worker gets a share.
#pragma once

#include <cstdint>
#include <vector>

#include "allreduce/layout.h"
#include "allreduce/scratch.h"
#include "allreduce/view.h"
#include "peel/exchange.h"

namespace peel::detail {

class SummedArray {
 public:
  SummedArray() = default;  // of a worker that has none
  SummedArray(Dense x, Outcome outcome) : dense_(x), outcome_(outcome), type_(x.type), elements_(x.size) {}
  SummedArray(Dense x, Dense residual)
      : dense_(x), residual_(residual), keeps_residual_(true), type_(x.type), elements_(x.size) {}
  SummedArray(ConstSparse x, std::uint64_t elements, Sparse& sum)
      : sparse_(x), sum_(&sum), type_(x.type), elements_(elements) {}

  [[nodiscard]] bool sparse() const noexcept { return sum_ != nullptr; }
  [[nodiscard]] bool scattered() const noexcept { return outcome_ == Outcome::scattered; }
  [[nodiscard]] bool on_device() const noexcept { return dense_.memory == Memory::device; }
  [[nodiscard]] bool keeps_residual() const noexcept { return keeps_residual_; }
  [[nodiscard]] Memory memory() const noexcept { return dense_.memory; }
  [[nodiscard]] ElementType type() const noexcept { return type_; }
  [[nodiscard]] std::uint64_t elements() const noexcept { return elements_; }
  [[nodiscard]] const Dense& dense() const noexcept { return dense_; }
  [[nodiscard]] const Dense& residual() const noexcept { return residual_; }
  [[nodiscard]] const ConstSparse& items() const noexcept { return sparse_; }

  [[nodiscard]] Layout cut(const StateOptions& options, unsigned workers) const;

  // Of a chunk; the sum of a sparse one goes to `part`.
  [[nodiscard]] ChunkView view(Share chunk, std::uint32_t grain, double factor, ChunkScratch& scratch,
                               Sparse& part) const;
  [[nodiscard]] Dense residual_of(Share chunk) const;
  // Of a scattered array: the elements that a chunk has of each worker's share.
  [[nodiscard]] std::vector<Share> pieces_of(Share chunk, unsigned workers) const;

  // The sum of a sparse array, from the sums of its chunks, which are used up.
  void join(const Layout& layout, std::uint32_t grain, std::vector<Sparse>& parts) const;
  // The sum where there is one worker.
  void take_own(std::uint32_t grain) const;

 private:
  Dense dense_;
  Dense residual_;
  bool keeps_residual_ = false;
  ConstSparse sparse_;
  Sparse* sum_ = nullptr;
  Outcome outcome_ = Outcome::everywhere;
  ElementType type_ = ElementType::float32;
  std::uint64_t elements_ = 0;
};

}  // namespace peel::detail
