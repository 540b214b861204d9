// The sum of all workers' gradients, computed once and kept: most results are compared with it, byte for byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cli/gradients.h"
#include "peel/buffer.h"
#include "peel/gradient.h"

namespace peel::cli {

class KnownSum {
 public:
  static KnownSum dense(const Gradients& gradients, unsigned threads = 1);
  static KnownSum sparse(const Gradients& gradients, Grain grain);

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return dense_; }  // of a dense one

  // Whether elements [begin, begin + count) have the same bytes.
  [[nodiscard]] bool equals(ConstDense sum, std::uint64_t begin, std::size_t count) const;
  // Whether it has the same items with the same bytes. Another result may be right too: it may hold items of zeros.
  [[nodiscard]] bool equals(const Sparse& sum) const;

 private:
  Buffer<std::byte> dense_;
  Sparse sparse_;
};

}  // namespace peel::cli
