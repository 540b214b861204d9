#include "allreduce/average.h"

#include <bit>
#include <cstring>
#include <type_traits>

#include "codec/engine.h"

namespace peel::detail {

namespace {

// Between 16 bits and float32 without a branch or a call, so that compilers turn loops over them into vectors.

float widened(bfloat16 value) { return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16); }

bfloat16 narrowed(float value, bfloat16 /*type*/) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;  // ties to even
  const std::uint32_t quiet = bits >> 16 | 0x40;
  return {static_cast<std::uint16_t>((bits & 0x7FFFFFFF) > 0x7F800000 ? quiet : rounded)};
}

// The fraction goes to its place, and the exponent gets the other bias. Subnormal numbers are what is above 2^-14 in a
// number with their fraction: no operand is subnormal itself, since processors may be told to take such for zero.
float widened(float16 value) {
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000) << 16;
  const std::uint32_t magnitude = static_cast<std::uint32_t>(value.bits & 0x7FFF) << 13;
  const auto subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(0x38800000 | magnitude) - 0x1p-14F);
  std::uint32_t result = magnitude < 0x00800000 ? subnormal : magnitude + 0x38000000;
  result = magnitude >= 0x0F800000 ? magnitude | 0x7F800000 : result;  // infinity or NaN
  return std::bit_cast<float>(sign | result);
}

float16 narrowed(float value, float16 /*type*/) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7FFFFFFF;
  // Below the smallest normal number the sum with 0.5 has its last bit where a subnormal number has it, rounded.
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3F000000;
  const std::uint32_t normal = (magnitude - 0x38000000 + 0xFFF + (magnitude >> 13 & 1)) >> 13;
  std::uint32_t result = magnitude < 0x38800000 ? subnormal : normal;
  result = magnitude >= 0x477FF000 ? 0x7C00 : result;  // rounds to more than the largest
  result = magnitude > 0x7F800000 ? 0x7E00 : result;
  return {static_cast<std::uint16_t>((bits >> 16 & 0x8000) | result)};
}

template <typename T>
void multiply_all(double factor, const T* from, T* to, std::size_t count) {
  if constexpr (std::is_same_v<T, float>) {
    const auto narrow_factor = static_cast<float>(factor);
    for (std::size_t i = 0; i < count; ++i) to[i] = from[i] * narrow_factor;
  } else if constexpr (std::is_same_v<T, double>) {
    for (std::size_t i = 0; i < count; ++i) to[i] = from[i] * factor;
  } else if constexpr (!std::is_integral_v<T>) {
    const auto narrow_factor = static_cast<float>(factor);
    for (std::size_t i = 0; i < count; ++i) to[i] = narrowed(widened(from[i]) * narrow_factor, T{});
  }
}

}  // namespace

void multiply(ElementType type, double factor, std::span<const std::byte> from, std::byte* to) {
  if (factor == 1) {
    if (!from.empty() && to != from.data()) std::memcpy(to, from.data(), from.size());
    return;
  }
  with_element(type, [&](auto t) {
    using T = decltype(t);
    multiply_all(factor, reinterpret_cast<const T*>(from.data()), reinterpret_cast<T*>(to), from.size() / sizeof(T));
  });
}

void multiply(ElementType type, double factor, Support& support) {
  if (factor == 1) return;
  SupportData& data = support.data();
  for (Segment& segment : data.segments) {
    const std::size_t bytes = segment.items * data.item_bytes;
    if (bytes == 0) continue;
    if (segment.values != segment.storage.data()) segment.storage.resize(bytes);
    multiply(type, factor, {segment.values, bytes}, segment.storage.data());
    segment.values = segment.storage.data();
  }
}

}  // namespace peel::detail
