// One kernel for each float type: what chooses among them at run time.
#pragma once

#include <cstdint>

#include "peel/types.h"

namespace peel::cuda::detail {

// A float type, and the unsigned integer of its width.
template <ElementType kElementType, typename Unsigned>
struct FloatType {
  static constexpr ElementType kType = kElementType;
  using Bits = Unsigned;
};

// visit(FloatType<...>{}) with the type, and true; false for integers.
template <typename Visit>
bool with_float(ElementType type, Visit&& visit) {
  switch (type) {
    case ElementType::float32:
      visit(FloatType<ElementType::float32, std::uint32_t>{});
      return true;
    case ElementType::float64:
      visit(FloatType<ElementType::float64, std::uint64_t>{});
      return true;
    case ElementType::float16:
      visit(FloatType<ElementType::float16, std::uint16_t>{});
      return true;
    case ElementType::bfloat16:
      visit(FloatType<ElementType::bfloat16, std::uint16_t>{});
      return true;
    default:
      return false;
  }
}

}  // namespace peel::cuda::detail
