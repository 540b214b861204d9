// Arrays of numbers in NumPy's .npy files, versions 1 to 3, as gradients are saved by everybody. Files may come from
// strangers: a header is believed only as far as the bytes behind it go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/files.h"
#include "peel/buffer.h"
#include "peel/gradient.h"
#include "peel/types.h"

namespace peel::cli::npy {

struct Array {
  bool is_mask = false;  // of booleans: one byte per element, true if not 0; `type` is int8
  ElementType type = ElementType::float32;
  std::vector<std::uint64_t> shape;
  std::uint64_t size = 0;  // elements, the product of the shape
  Buffer<std::byte> data;  // in C order, whatever the order in the file

  [[nodiscard]] ConstDense view() const { return {data.data(), size, type}; }
};

// Reads a file, or standard input for "-"; throws Failure. NumPy has no bfloat16: such arrays are saved as two raw
// bytes ("V2"), which `raw` must declare to be bfloat16 (or float16) here.
Array load(const std::string& path, std::optional<ElementType> raw = std::nullopt, const Moved& moved = {});

// Writes a one-dimensional array; an existing file is replaced. bfloat16 is written as "V2".
void save(const std::string& path, ConstDense x);
void write(Output& output, ConstDense x, const Moved& moved = {});

}  // namespace peel::cli::npy
