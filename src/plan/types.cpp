#include "peel/types.h"

namespace peel {

std::size_t size_of(ElementType type) noexcept {
  switch (type) {
    case ElementType::int8:
      return 1;
    case ElementType::float16:
    case ElementType::bfloat16:
    case ElementType::int16:
      return 2;
    case ElementType::float32:
    case ElementType::int32:
      return 4;
    case ElementType::float64:
    case ElementType::int64:
      return 8;
  }
  return 0;
}

bool is_integer(ElementType type) noexcept {
  return type == ElementType::int8 || type == ElementType::int16 || type == ElementType::int32 ||
         type == ElementType::int64;
}

std::string_view name(ElementType type) noexcept {
  switch (type) {
    case ElementType::float32:
      return "float32";
    case ElementType::float64:
      return "float64";
    case ElementType::float16:
      return "float16";
    case ElementType::bfloat16:
      return "bfloat16";
    case ElementType::int8:
      return "int8";
    case ElementType::int16:
      return "int16";
    case ElementType::int32:
      return "int32";
    case ElementType::int64:
      return "int64";
  }
  return "unknown";
}

std::string_view name(CellType cells) noexcept {
  switch (cells) {
    case CellType::automatic:
      return "auto";
    case CellType::native:
      return "native";
    case CellType::fixed32:
      return "fixed32";
    case CellType::fixed64:
      return "fixed64";
    case CellType::float32:
      return "float32";
  }
  return "unknown";
}

std::string_view name(Codec codec) noexcept { return codec == Codec::packed ? "packed" : "sketch"; }

std::string_view name(Memory memory) noexcept { return memory == Memory::host ? "host" : "device"; }

std::string_view name(Index index) noexcept {
  switch (index) {
    case Index::automatic:
      return "auto";
    case Index::bitmap:
      return "bitmap";
    case Index::bloom:
      return "bloom";
    case Index::list:
      return "list";
  }
  return "unknown";
}

}  // namespace peel
