// How NCCL carries the numbers of a sum. It has no 16-bit integers: they travel as 32-bit ones, and lose again what the
// sum carried into the upper half.
#pragma once

#include "peel/nccl.h"

namespace peel::detail {

inline bool is_widened(ElementType type) noexcept { return type == ElementType::int16; }

inline std::size_t wire_bytes(ElementType type) noexcept {
  return is_widened(type) ? sizeof(std::int32_t) : size_of(type);
}

inline ncclDataType_t wire_type(ElementType type) noexcept {
  switch (type) {
    case ElementType::float32:
      return ncclFloat32;
    case ElementType::float64:
      return ncclFloat64;
    case ElementType::float16:
      return ncclFloat16;
    case ElementType::bfloat16:
      return ncclBfloat16;
    case ElementType::int8:
      return ncclInt8;
    case ElementType::int64:
      return ncclInt64;
    default:
      return ncclInt32;
  }
}

}  // namespace peel::detail
