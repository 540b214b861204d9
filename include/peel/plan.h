// A plan: everything workers must agree on before they encode. Immutable, and a pure function of its options: every
// size is computed in integers, so two machines or compilers never disagree about one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "peel/geometry.h"
#include "peel/types.h"

namespace peel {

struct PlanOptions {
  std::uint64_t elements = 0;
  ElementType type = ElementType::float32;
  std::uint64_t expected_items = 0;  // items in the union of all workers; sizes sketches and Bloom filters
  std::uint32_t workers = 1;         // fixed-point cells keep log2(workers) bits free
  Codec codec = Codec::packed;
  CellType cells = CellType::automatic;  // packed: native. sketch: fixed32, or fixed64 for 8-byte elements
  std::uint32_t grain = 1;               // elements per item: 1, 2, 4 ... 1024
  std::uint32_t phase = 0;               // the element at which the first whole grain starts, below grain
  Index index = Index::automatic;        // the smallest of those allowed
  bool allow_bloom = true;               // false where reading a filter out (a pass over all items) costs too much
  bool allow_list = false;               // true for messages that nobody combines by OR: files, all-to-all
  std::uint64_t seed = 0x5EED;
  std::uint32_t headroom_permille = 0;  // room for this many more items than expected, in thousandths
  std::int32_t scale = 0;               // fixed cells hold round(x * 2^scale); see fit_scale(). 0 for integers
  std::uint64_t payload_bytes = 0;      // sketch: fix the payload to this size instead of sizing it. 0: size it
};

class Plan {
 public:
  static Plan make(const PlanOptions& options);              // throws peel::Error
  static Plan parse(std::span<const std::byte> descriptor);  // throws peel::Error
  [[nodiscard]] std::vector<std::byte> serialise() const;    // kDescriptorBytes bytes, docs/format.md

  static constexpr std::size_t kDescriptorBytes = 96;

  [[nodiscard]] std::uint64_t elements() const noexcept;
  [[nodiscard]] ElementType type() const noexcept;
  [[nodiscard]] Codec codec() const noexcept;
  [[nodiscard]] CellType cells() const noexcept;  // never `automatic`
  [[nodiscard]] Index index() const noexcept;     // never `automatic`
  [[nodiscard]] std::uint32_t grain() const noexcept;
  [[nodiscard]] std::uint32_t phase() const noexcept;
  [[nodiscard]] std::uint32_t workers() const noexcept;
  [[nodiscard]] std::int32_t scale() const noexcept;
  [[nodiscard]] std::uint64_t seed() const noexcept;

  [[nodiscard]] std::uint64_t items() const noexcept;            // how many items the array has, zero or not
  [[nodiscard]] std::uint64_t expected_items() const noexcept;   // with headroom
  [[nodiscard]] std::uint64_t blocks() const noexcept;           // sketch; else 0
  [[nodiscard]] std::uint64_t cells_per_block() const noexcept;  // sketch; else 0
  [[nodiscard]] std::size_t cell_bytes() const noexcept;         // one counter
  [[nodiscard]] ElementType payload_type() const noexcept;       // in which counters are summed
  [[nodiscard]] std::uint64_t index_words() const noexcept;      // with the flag word; an estimate for lists

  [[nodiscard]] std::uint64_t index_bytes() const noexcept;
  [[nodiscard]] std::uint64_t payload_bytes() const noexcept;  // exact for sketch, expected for packed
  [[nodiscard]] std::uint64_t message_bytes() const noexcept { return index_bytes() + payload_bytes(); }
  // What a decoded array takes. A message of a few hundred bytes may state terabytes: readers of messages that others
  // wrote look at it before they allocate (plausible_dense_bytes in peel/message.h).
  [[nodiscard]] std::uint64_t dense_bytes() const noexcept;
  [[nodiscard]] std::uint64_t lower_bound_bytes() const noexcept;  // of the expected items, all their elements non-zero

  // How many workers a message may hold: workers() where fixed cells hold floating-point values, which would wrap
  // beyond; elsewhere kMostWorkers.
  static constexpr std::uint64_t kMostWorkers = ~std::uint64_t{0} >> 1;
  [[nodiscard]] std::uint64_t most_workers() const noexcept;

  // The largest error of one decoded element before it is rounded to its type: 0, or workers * 2^-(scale+1).
  [[nodiscard]] double error_bound() const noexcept;

  [[nodiscard]] std::uint64_t fingerprint() const noexcept;
  [[nodiscard]] std::string describe() const;

  friend bool operator==(const Plan& a, const Plan& b) noexcept { return a.fingerprint() == b.fingerprint(); }

  [[nodiscard]] const detail::Geometry& geometry() const noexcept { return geometry_; }

 private:
  Plan() = default;
  detail::Geometry geometry_;
  std::uint64_t fingerprint_ = 0;
};

// The paper's S_min, rounded up to bytes: what any code needs for `nonzeros` of `elements` values of `bits` bits when
// the support has no structure.
std::uint64_t lower_bound_bytes(std::uint64_t elements, std::uint64_t nonzeros, std::uint32_t bits);

// The largest scale at which values up to `largest` in magnitude fit the cells, summed over all workers.
// `cells` is fixed32 or fixed64.
std::int32_t fit_scale(double largest, CellType cells, std::uint32_t workers);

}  // namespace peel
