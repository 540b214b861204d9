// The two views of a gradient: dense (an array of N elements) and sparse (sorted item numbers and their values).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "peel/types.h"

namespace peel {

namespace detail {
template <typename T>
struct ElementOf;
template <>
struct ElementOf<float> {
  static constexpr ElementType value = ElementType::float32;
};
template <>
struct ElementOf<double> {
  static constexpr ElementType value = ElementType::float64;
};
template <>
struct ElementOf<float16> {
  static constexpr ElementType value = ElementType::float16;
};
template <>
struct ElementOf<bfloat16> {
  static constexpr ElementType value = ElementType::bfloat16;
};
template <>
struct ElementOf<std::int8_t> {
  static constexpr ElementType value = ElementType::int8;
};
template <>
struct ElementOf<std::int16_t> {
  static constexpr ElementType value = ElementType::int16;
};
template <>
struct ElementOf<std::int32_t> {
  static constexpr ElementType value = ElementType::int32;
};
template <>
struct ElementOf<std::int64_t> {
  static constexpr ElementType value = ElementType::int64;
};
template <typename T>
concept Element = requires {
  ElementOf<std::remove_const_t<T>>::value;
};
}  // namespace detail

// N elements to read.
struct ConstDense {
  const void* data = nullptr;
  std::uint64_t size = 0;
  ElementType type = ElementType::float32;

  ConstDense() = default;
  ConstDense(const void* data_, std::uint64_t size_, ElementType type_) : data(data_), size(size_), type(type_) {}
  template <detail::Element T>
  ConstDense(std::span<T> x) : data(x.data()), size(x.size()), type(detail::ElementOf<std::remove_const_t<T>>::value) {}
  template <detail::Element T>
  ConstDense(const std::vector<T>& x) : ConstDense(std::span<const T>(x)) {}
};

// N elements to write. All-reduces take them in device memory, too; the codec of the host does not look at `memory`.
struct Dense {
  void* data = nullptr;
  std::uint64_t size = 0;
  ElementType type = ElementType::float32;
  Memory memory = Memory::host;

  Dense() = default;
  Dense(void* data_, std::uint64_t size_, ElementType type_, Memory memory_ = Memory::host)
      : data(data_), size(size_), type(type_), memory(memory_) {}
  template <detail::Element T>
  Dense(std::span<T> x) : data(x.data()), size(x.size()), type(detail::ElementOf<T>::value) {}
  template <detail::Element T>
  Dense(std::vector<T>& x) : Dense(std::span<T>(x)) {}
};

// Item numbers in increasing order, and `grain` values for each, one item after another. An item that reaches over the
// ends of the array (the first with a phase, the last) still has `grain` values; those outside are ignored.
struct ConstSparse {
  std::span<const std::uint64_t> items;
  const void* values = nullptr;
  ElementType type = ElementType::float32;

  ConstSparse() = default;
  ConstSparse(std::span<const std::uint64_t> items_, const void* values_, ElementType type_)
      : items(items_), values(values_), type(type_) {}
};

// What decode() fills: it owns its memory and keeps it from call to call.
struct Sparse {
  std::vector<std::uint64_t> items;
  std::vector<std::byte> values;
  ElementType type = ElementType::float32;

  template <typename T>
  [[nodiscard]] std::span<const T> values_as() const {
    return {reinterpret_cast<const T*>(values.data()), values.size() / sizeof(T)};
  }
  operator ConstSparse() const { return {items, values.data(), type}; }
};

}  // namespace peel
