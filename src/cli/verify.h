// Is what was decoded the sum? Compared with the sum that gradients.h knows without any codec, element by element.
//
// What counts as wrong:
//   drawn values and masks        anything but equality: their sums are exact in every order and in fixed cells
//   real values, native cells     up to two workers: anything but a + b; more: what no order of additions could give,
//                                 farther than (W - 1) * epsilon * sum of magnitudes from the sum in double precision
//   real values, fixed cells      farther from the sum than the plan's error bound and the rounding to the type
//   float32 cells                 farther than 2^-10 of the largest possible sum, which is garbage, not rounding: their
//                                 error depends on what shared a cell, so the largest one is reported instead
//   rounded once (all-reduce)     anything but the sum in rank order in double precision, rounded to the type; with
//                                 float64 elements, whose wider type is not double, as native cells
//   always                        a NaN or infinity that the sum has not, and the reverse; an element never written;
//                                 an element of a lost item that was written, unless it was estimated
#pragma once

#include <cstddef>
#include <cstdint>

#include "cli/gradients.h"
#include "cli/known_sum.h"
#include "peel/codec.h"
#include "peel/report.h"

namespace peel::cli {

struct Verdict {
  std::uint64_t wrong = 0;  // elements; those of lost items are not among them
  double max_error = 0;     // the largest of any element that was not lost
  // Over the elements of lost items whose sum is not zero; only with an estimate.
  double mean_relative_error = 0;
  double max_relative_error = 0;
};

// Bytes to fill an array with before it is decoded into. As an element of any type they are no sum of drawn values, and
// not zero, so an element that was never written is found.
inline constexpr std::byte kUnwritten{0xA5};

struct Decoded {
  const Plan* plan = nullptr;          // empty: a dense sum in the element type
  const Recovery* recovery = nullptr;  // with the list of lost items
  bool estimated = false;
  unsigned threads = 1;  // that verify a dense array
};

// What an all-reduce left.
struct Reduced {
  Exactness exactness = Exactness::as_dense;
  double error_bound = 0;
  Grain grain = {};                 // of a sparse view
  const KnownSum* known = nullptr;  // what is equal to it needs no closer look, which takes longer than most sums do
  unsigned threads = 1;             // that verify a dense array
};

Verdict verify(const Gradients& gradients, ConstDense sum, const Decoded& decoded);
Verdict verify(const Gradients& gradients, const Sparse& sum, const Decoded& decoded);
Verdict verify(const Gradients& gradients, ConstDense sum, const Reduced& reduced);
Verdict verify(const Gradients& gradients, const Sparse& sum, const Reduced& reduced);

}  // namespace peel::cli
