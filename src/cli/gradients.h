// The gradients of all workers of a measurement, in either view, and their sum, known without any codec.
//
// Drawn gradients: the union's support is drawn first (patterns.h), and then, by a hash, which workers have each
// stretch of it; so the union has the density that was asked for, whatever the number of workers. Values are non-zero
// integers times a power of two, and small enough that the sum over all workers is exact in the element type and in
// fixed32 cells, in any order: a result is right if it is equal. Masks get such values too; loaded gradients keep their
// own. On demand values are drawn as real gradients have them, with 13 orders of magnitude between them.
//
// Nothing is stored but the stretches (or the files): elements are computed when they are read, so the memory is that
// of the one array the caller holds.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "cli/patterns.h"
#include "peel/buffer.h"
#include "peel/gradient.h"

namespace peel::cli {

// The elements [begin, end) that an item has in the array, and which of its values the first one is. The first item and
// the last may reach over the ends.
struct Extent {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t slot = 0;
};

// How the array is cut into items, as a plan does it.
struct Grain {
  std::uint32_t size = 1;
  std::uint32_t phase = 0;

  [[nodiscard]] std::uint64_t lead() const noexcept { return phase == 0 ? 0 : size - phase; }
  [[nodiscard]] std::uint64_t item(std::uint64_t element) const noexcept { return (element + lead()) / size; }
  [[nodiscard]] Extent extent(std::uint64_t item, std::uint64_t elements) const noexcept {
    const std::uint64_t origin = item * size;  // counted from `lead` elements before the array
    const std::uint64_t slot = origin < lead() ? lead() - origin : 0;
    return {origin + slot - lead(), std::min(origin + size - lead(), elements), slot};
  }
};

// Which workers have a stretch of the union.
enum class Sharing : std::uint8_t {
  owned,        // one owner, and every other worker with the probability `overlap`
  independent,  // as if every worker had drawn its own support, knowing nothing of the others
  full,         // all
};
std::string_view name(Sharing) noexcept;

enum class Values : std::uint8_t {
  exact,  // whose sums are exact in any order
  real,   // as gradients have them: any sign and significand, magnitudes from 1.4e-14 to 0.125, every binade as likely
};
std::string_view name(Values) noexcept;

struct GradientOptions {
  std::uint64_t elements = 0;
  double density = 0;  // of the union, in elements
  ElementType type = ElementType::float32;
  std::uint32_t workers = 1;
  Sharing sharing = Sharing::owned;
  double overlap = 0.25;  // of owned stretches
  Values values = Values::exact;
  std::uint64_t seed = 1;
};

// Where a reader stands, so that reading on does not search again.
struct Cursor {
  std::size_t stretch = 0;
  bool placed = false;  // the first read searches: it may begin anywhere
};

class GradientSource;

class Gradients {
 public:
  using Run = std::function<void(std::uint64_t begin, std::uint64_t end)>;

  // Files decide about elements, type (but for masks) and density. Throws Failure.
  Gradients(const Pattern& pattern, const GradientOptions& options);
  ~Gradients();

  [[nodiscard]] std::uint64_t elements() const noexcept { return options_.elements; }
  [[nodiscard]] ElementType type() const noexcept { return options_.type; }
  [[nodiscard]] std::uint32_t workers() const noexcept { return options_.workers; }
  [[nodiscard]] double overlap() const noexcept { return options_.overlap; }
  [[nodiscard]] Sharing sharing() const noexcept { return options_.sharing; }
  [[nodiscard]] std::uint64_t dense_bytes() const noexcept { return elements() * size_of(type()); }
  [[nodiscard]] std::uint64_t nonzeros() const noexcept { return nonzeros_; }  // of the union
  [[nodiscard]] double density() const noexcept;                               // of the union
  [[nodiscard]] double largest() const noexcept;   // no finite element of any worker is larger in magnitude
  [[nodiscard]] bool drawn() const noexcept;       // not loaded: `overlap` had a say
  [[nodiscard]] bool exact_sums() const noexcept;  // in any order and in any cells

  // Elements [begin, begin + out.size()) of one worker. With a cursor, reads must go forward.
  void read(std::uint32_t worker, std::uint64_t begin, std::span<double> out, Cursor& cursor) const;
  // The same of the sum, and of the sum of magnitudes where that is not empty.
  void read_sum(std::uint64_t begin, std::span<double> sum, std::span<double> magnitude, Cursor& cursor) const;

  // The non-zero elements of one worker, or of the union, as runs in increasing order. Neighbours may touch.
  void runs(std::optional<std::uint32_t> worker, const Run& visit) const;
  [[nodiscard]] std::uint64_t count_items(Grain grain) const;  // of the union
  [[nodiscard]] std::vector<std::uint64_t> items(std::optional<std::uint32_t> worker, Grain grain) const;

  // One worker's gradient, dense: all elements of `out`, which has them all.
  void fill_dense(std::uint32_t worker, Dense out, unsigned threads = 1) const;
  // Sparse: `items` is what items(worker, grain) returned; `values` gets a grain of values for each.
  void fill_sparse(std::uint32_t worker, Grain grain, std::span<const std::uint64_t> items,
                   Buffer<std::byte>& values) const;

 private:
  GradientOptions options_;
  std::unique_ptr<GradientSource> source_;
  std::uint64_t nonzeros_ = 0;
};

// For people: "uniform, 2^24 float32, 1.00% non-zero, 4 workers".
std::string describe(const Pattern& pattern, const Gradients& gradients);

}  // namespace peel::cli
