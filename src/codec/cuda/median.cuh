// The estimate of an item that did not peel: the median of its three cells, read as signed numbers.
#pragma once

#include <cstdint>
#include <type_traits>

#include "codec/cuda/kernels.h"

namespace peel::cuda::detail {

template <typename Number>
__device__ Number middle(Number a, Number b, Number c) {
  return max(min(a, b), min(max(a, b), c));
}

template <typename Cell>
__device__ Cell median(Cell a, Cell b, Cell c, const Conversion& how) {
  if (sizeof(Cell) == 4 && how.cells == CellType::float32) {
    return __float_as_uint(middle(__uint_as_float(static_cast<std::uint32_t>(a)),
                                  __uint_as_float(static_cast<std::uint32_t>(b)),
                                  __uint_as_float(static_cast<std::uint32_t>(c))));
  }
  using Signed = std::conditional_t<sizeof(Cell) == 4, int, long long>;
  return static_cast<Cell>(middle(static_cast<Signed>(a), static_cast<Signed>(b), static_cast<Signed>(c)));
}

}  // namespace peel::cuda::detail
