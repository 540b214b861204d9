// The kinds of things a plan chooses between. Numeric values are part of the message format (docs/format.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace peel {

enum class ElementType : std::uint8_t {
  float32 = 0,
  float64 = 1,
  float16 = 2,
  bfloat16 = 3,
  int8 = 4,
  int16 = 5,
  int32 = 6,
  int64 = 7,
};

// How a value travels in the payload. `native`: in the element's own type, as a dense sum would add it.
// `fixed32`, `fixed64`: round(x * 2^scale), summed modulo 2^32 or 2^64. `float32`: the paper's inexact cells.
enum class CellType : std::uint8_t { automatic = 0, native = 1, fixed32 = 2, fixed64 = 3, float32 = 4 };

// `packed`: two rounds, the index first, then the values of the union by rank. `sketch`: one round, a Count Sketch.
enum class Codec : std::uint8_t { packed = 0, sketch = 1 };

// Which items a message holds. Bitmap and Bloom filter combine by OR; a list only by peel::merge.
enum class Index : std::uint8_t { automatic = 0, bitmap = 1, bloom = 2, list = 3 };

// Where an array lies: in the memory of the host, or of a GPU.
enum class Memory : std::uint8_t { host, device };

// A 16-bit float as it lies in memory; arithmetic on it is the caller's business.
struct float16 {
  std::uint16_t bits;
};
struct bfloat16 {
  std::uint16_t bits;
};

std::size_t size_of(ElementType type) noexcept;
bool is_integer(ElementType type) noexcept;

std::string_view name(ElementType) noexcept;
std::string_view name(CellType) noexcept;
std::string_view name(Codec) noexcept;
std::string_view name(Index) noexcept;
std::string_view name(Memory) noexcept;

}  // namespace peel
