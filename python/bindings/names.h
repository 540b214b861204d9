// Enumerators by their names, as Python writes them.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "peel/error.h"
#include "peel/report.h"
#include "peel/types.h"

namespace peel::python {

template <typename Enum>
Enum named(std::string_view what, std::string_view text, std::initializer_list<Enum> all) {
  std::string known;
  for (const Enum one : all) {
    if (name(one) == text) return one;
    known.append(known.empty() ? "" : ", ").append(name(one));
  }
  throw Error(ErrorCode::invalid_argument,
              std::string(what) + " \"" + std::string(text) + "\" is unknown; it is one of " + known + ".");
}

inline Strategy strategy_named(std::string_view text) {
  return named(
      "The strategy", text,
      {Strategy::automatic, Strategy::dense, Strategy::packed, Strategy::sketch, Strategy::split, Strategy::gather});
}
inline ElementType type_named(std::string_view text) {
  return named("The element type", text,
               {ElementType::float32, ElementType::float64, ElementType::float16, ElementType::bfloat16,
                ElementType::int8, ElementType::int16, ElementType::int32, ElementType::int64});
}
inline Codec codec_named(std::string_view text) { return named("The codec", text, {Codec::packed, Codec::sketch}); }
inline CellType cells_named(std::string_view text) {
  return named("The cell type", text,
               {CellType::automatic, CellType::native, CellType::fixed32, CellType::fixed64, CellType::float32});
}
inline Index index_named(std::string_view text) {
  return named("The index", text, {Index::automatic, Index::bitmap, Index::bloom, Index::list});
}

}  // namespace peel::python
