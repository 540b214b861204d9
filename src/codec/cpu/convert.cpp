// Elements to cells and back, for whole arrays. The arithmetic is codec/values.h; here it is compiled for vectors.
#include "codec/cpu/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/cpu/convert.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace peel::detail::cpu::HWY_NAMESPACE {

bool ToCells(const Geometry& g, const std::byte* values, std::size_t count, std::byte* cells) {
  return with_cell(g, [&](auto t, auto c) {
    using Cell = decltype(c);
    const auto* HWY_RESTRICT from = reinterpret_cast<const decltype(t)*>(values);
    auto* HWY_RESTRICT to = reinterpret_cast<Cell*>(cells);
    const Scaling scaling(g);
    bool fits = true;
    for (std::size_t i = 0; i < count; ++i) to[i] = to_cell<Cell>(from[i], scaling, fits);
    return fits;
  });
}

void FromCells(const Geometry& g, const std::byte* cells, std::size_t count, std::byte* values) {
  with_cell(g, [&](auto t, auto c) {
    using T = decltype(t);
    const auto* HWY_RESTRICT from = reinterpret_cast<const decltype(c)*>(cells);
    auto* HWY_RESTRICT to = reinterpret_cast<T*>(values);
    const Scaling scaling(g);
    for (std::size_t i = 0; i < count; ++i) to[i] = from_cell<T>(from[i], scaling);
  });
}

}  // namespace peel::detail::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace peel::detail::cpu {

HWY_EXPORT(ToCells);
HWY_EXPORT(FromCells);

bool to_cells(const Geometry& g, const std::byte* values, std::size_t count, std::byte* cells) {
  return HWY_DYNAMIC_DISPATCH(ToCells)(g, values, count, cells);
}

void from_cells(const Geometry& g, const std::byte* cells, std::size_t count, std::byte* values) {
  HWY_DYNAMIC_DISPATCH(FromCells)(g, cells, count, values);
}

}  // namespace peel::detail::cpu
#endif
