// Who owns which tiles of an array: they are dealt to the workers one after another, so that a dense stretch is
// everybody's work. One owner alone has the array as it is.
#pragma once

#include "codec/cuda/kernels.h"
#include "peel/plan.h"

namespace peel::cuda::detail {

class Shares {
 public:
  Shares(const Plan& array, unsigned owners) : g_(array.geometry()), owners_(owners), seed_(array.seed()) {}

  [[nodiscard]] Stripes stripes(unsigned owner) const noexcept { return {owners_, owner, g_.lead}; }

  // Of the messages of a share that has about so many items: a list where they are few, else a bitmap.
  [[nodiscard]] Plan plan(unsigned owner, std::uint64_t items) const;

 private:
  [[nodiscard]] std::uint64_t elements(unsigned owner) const noexcept;

  Geometry g_;
  unsigned owners_;
  std::uint64_t seed_;
};

}  // namespace peel::cuda::detail
