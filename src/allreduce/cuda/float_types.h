// One kernel for each float type: what chooses among them at run time.
#pragma once

#include "peel/types.h"
#include "plan/element_values.h"

namespace peel::cuda::detail {

// A float type by both of its names, and the unsigned integer of its width.
template <ElementType kElementType, typename Float>
struct FloatType {
  static constexpr ElementType kType = kElementType;
  using Element = Float;
  using Bits = peel::detail::Bits<Float>;
};

// visit(FloatType<...>{}) with the type, and true; false for integers.
template <typename Visit>
bool with_float(ElementType type, Visit&& visit) {
  switch (type) {
    case ElementType::float32:
      visit(FloatType<ElementType::float32, float>{});
      return true;
    case ElementType::float64:
      visit(FloatType<ElementType::float64, double>{});
      return true;
    case ElementType::float16:
      visit(FloatType<ElementType::float16, float16>{});
      return true;
    case ElementType::bfloat16:
      visit(FloatType<ElementType::bfloat16, bfloat16>{});
      return true;
    default:
      return false;
  }
}

}  // namespace peel::cuda::detail
