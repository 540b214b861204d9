// Which elements are non-zero, one bit each, and what can be learned from that alone: density, runs, items at any
// grain. 410 million elements take 51 MB, so the supports of many workers are united file by file.
#pragma once

#include <cstdint>
#include <span>

#include "peel/buffer.h"
#include "peel/gradient.h"

namespace peel::cli {

struct Runs {
  std::uint64_t count = 0;
  double mean = 0;
  std::uint64_t median = 0;
  std::uint64_t longest = 0;
};

class Bitmap {
 public:
  explicit Bitmap(std::uint64_t elements);

  // Sets the bits of the non-zero elements of x (NaN is one, -0.0 is not) and returns how many those are.
  std::uint64_t unite(ConstDense x);
  void unite(const Bitmap& other);

  [[nodiscard]] std::uint64_t elements() const noexcept { return elements_; }
  [[nodiscard]] std::span<const std::uint64_t> words() const noexcept { return words_; }
  [[nodiscard]] std::uint64_t count() const noexcept;
  [[nodiscard]] Runs runs() const;

  // How many grains have a non-zero element; the first whole grain starts at element `phase`.
  [[nodiscard]] std::uint64_t items(std::uint32_t grain, std::uint32_t phase) const noexcept;

 private:
  std::uint64_t elements_;
  Buffer<std::uint64_t> words_;
};

}  // namespace peel::cli
