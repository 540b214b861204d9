// The estimate of an item that did not peel: the median of its three cells, read as signed numbers.
#pragma once

#include <cstdint>
#include <type_traits>

#include "codec/cuda/kernels.h"

namespace peel::cuda::detail {

template <typename Cell>
__device__ Cell median(Cell a, Cell b, Cell c, const Conversion& how) {
  if (sizeof(Cell) == 4 && how.cells == CellType::float32) {
    const float x = __uint_as_float(static_cast<std::uint32_t>(a)), y = __uint_as_float(static_cast<std::uint32_t>(b)),
                z = __uint_as_float(static_cast<std::uint32_t>(c));
    return __float_as_uint(fmaxf(fminf(x, y), fminf(fmaxf(x, y), z)));
  }
  using Signed = std::conditional_t<sizeof(Cell) == 4, int, long long>;
  const auto x = static_cast<Signed>(a), y = static_cast<Signed>(b), z = static_cast<Signed>(c);
  return static_cast<Cell>(max(min(x, y), min(max(x, y), z)));
}

}  // namespace peel::cuda::detail
