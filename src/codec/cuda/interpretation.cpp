#include "codec/cuda/interpretation.h"

#include <bit>
#include <cmath>
#include <type_traits>

#include "codec/values.h"

namespace peel::cuda::detail {

namespace {

// The largest magnitude, as bits of the type, that is finite.
std::uint64_t largest_finite(ElementType type) {
  switch (type) {
    case ElementType::float32:
      return 0x7F7FFFFF;
    case ElementType::float64:
      return 0x7FEFFFFFFFFFFFFF;
    case ElementType::float16:
      return 0x7BFF;
    case ElementType::bfloat16:
      return 0x7F7F;
    default:
      return ~std::uint64_t{0};
  }
}

// The largest magnitude, as bits, whose cell is within the limit of one worker. Cells grow with magnitudes, so it is
// found by halving.
std::uint64_t largest_fitting(const Geometry& g) {
  return peel::detail::with_element(g.type, [&](auto t) -> std::uint64_t {
    using T = decltype(t);
    if constexpr (std::is_integral_v<T>) {
      return ~std::uint64_t{0};
    } else {
      using Bits = peel::detail::Bits<T>;
      const peel::detail::Scaling scaling(g);
      const auto fits = [&](std::uint64_t bits) {
        bool good = true;
        const T value = std::bit_cast<T>(static_cast<Bits>(bits));
        if (g.cells == CellType::fixed64) {
          (void)peel::detail::to_cell<std::uint64_t>(value, scaling, good);
        } else {
          (void)peel::detail::to_cell<std::uint32_t>(value, scaling, good);
        }
        return good;
      };
      std::uint64_t low = 0;
      std::uint64_t high = largest_finite(g.type) + 1;
      while (high - low > 1) {
        const std::uint64_t middle = low + (high - low) / 2;
        (fits(middle) ? low : high) = middle;
      }
      return low;
    }
  });
}

}  // namespace

Limits limits_of(const Geometry& g) {
  const peel::detail::ZeroTest zero = peel::detail::zero_test(g);
  Limits limits;
  limits.mask = zero.mask;
  limits.zero = zero.threshold;
  if (peel::detail::has_scale(g)) {
    limits.checked = true;
    limits.fits = largest_fitting(g);
    limits.finite = largest_finite(g.type);
  }
  return limits;
}

Conversion conversion_of(const Geometry& g) {
  Conversion how;
  how.type = g.type;
  how.cells = g.cells;
  how.up = std::ldexp(1.0, g.scale);
  how.down = std::ldexp(1.0, -g.scale);
  how.single = g.type == ElementType::float32 && g.cells == CellType::fixed32 && g.scale >= -90 && g.scale <= 120;
  return how;
}

Conversion plain(const Geometry& g) {
  Conversion how;
  how.type = g.type;
  return how;
}

}  // namespace peel::cuda::detail
