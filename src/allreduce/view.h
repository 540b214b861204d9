// One chunk of the caller's gradient, dense or sparse, behind one face: read its items, write their sums.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "allreduce/estimate.h"
#include "codec/engine.h"
#include "peel/codec.h"
#include "peel/gradient.h"

namespace peel::detail {

// Whether sums are written one by one, and all other elements of a dense view stay as they are, which is zero.
bool is_patched(std::uint64_t union_items, std::uint64_t positions);

class ChunkView {
 public:
  // Dense: sums go to where the values are. What is read is multiplied by `factor`.
  ChunkView(Dense x, double factor) : dense_(x), type_(x.type), elements_(x.size), factor_(factor) {}
  // Sparse: `items` are counted from the first of the chunk; sums go to `sum`.
  ChunkView(ConstSparse x, std::uint64_t elements, double factor, Sparse& sum)
      : sparse_(x), sum_(&sum), type_(x.type), elements_(elements), factor_(factor) {}

  [[nodiscard]] bool sparse() const noexcept { return sum_ != nullptr; }
  [[nodiscard]] ElementType type() const noexcept { return type_; }
  [[nodiscard]] std::uint64_t elements() const noexcept { return elements_; }
  [[nodiscard]] Dense dense() const noexcept { return dense_; }
  [[nodiscard]] double factor() const noexcept { return factor_; }

  void scan(const Plan& plan, Support& support, const Execution& execution) const;
  // The union and its sums.
  void write(const Plan& plan, std::span<const std::uint64_t> words, std::span<const std::byte> values,
             const Execution& execution) const;
  Recovery decode(const Plan& plan, const Message& message, const DecodeOptions& options) const;

  // The energies of the sum, some items of which were estimated.
  void measure(const Plan& plan, std::span<const std::uint64_t> lost, ChunkEnergy& energy) const;

  // This worker's values of some items, `grain` each, zeros where it has none; and their sums back.
  void take(const Plan& plan, std::span<const std::uint64_t> items, std::byte* values) const;
  void put(const Plan& plan, std::span<const std::uint64_t> items, const std::byte* values) const;

 private:
  void patch(const Engine& engine, const Plan& plan, std::span<const std::uint64_t> words,
             std::span<const std::byte> values) const;

  Dense dense_;
  ConstSparse sparse_;
  Sparse* sum_ = nullptr;
  ElementType type_;
  std::uint64_t elements_;
  double factor_;
};

}  // namespace peel::detail
