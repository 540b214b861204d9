// What the headers of src/plan compute, as functions of two words: the same source on the host and on a device.
#pragma once

#include <cuda_runtime_api.h>

#include <bit>
#include <cstdint>

#include "plan/coded_list.h"
#include "plan/element_values.h"
#include "plan/mapping.h"
#include "plan/rank_sum.h"

namespace peel::testing {

enum class Arithmetic {
  widen_half,
  widen_brain,
  narrow_half,
  narrow_brain,
  narrow_float,
  add_half,
  add_brain,
  add_float,
  add_double,
  sum_brain,
  sum_double,
  fixed32,
  fixed64,
  parameters,
  high_product,
};
inline constexpr int kArithmetics = 15;

// Bits of a float that are the same for every NaN.
template <typename T>
PEEL_HOST_DEVICE std::uint64_t known_bits(T value) {
  const double wide = peel::detail::widen(value);
  return wide == wide ? std::bit_cast<peel::detail::Bits<T>>(value) : ~std::uint64_t{0};
}
template <typename T>
PEEL_HOST_DEVICE T element_of(std::uint64_t bits) {
  return std::bit_cast<T>(static_cast<peel::detail::Bits<T>>(bits));
}
template <typename T>
PEEL_HOST_DEVICE std::uint64_t sum_of_three(T a, T b) {
  peel::detail::RankSum<T> sum{};
  peel::detail::accumulate(sum, a);
  peel::detail::accumulate(sum, b);
  peel::detail::accumulate(sum, a);
  return known_bits(peel::detail::rounded<T>(sum));
}

PEEL_HOST_DEVICE std::uint64_t compute(Arithmetic what, std::uint64_t a, std::uint64_t b) {
  namespace pd = peel::detail;
  switch (what) {
    case Arithmetic::widen_half:
      return known_bits(pd::widen(element_of<float16>(a)));
    case Arithmetic::widen_brain:
      return known_bits(pd::widen(element_of<bfloat16>(a)));
    case Arithmetic::narrow_half:
      return known_bits(pd::narrow<float16>(element_of<double>(a)));
    case Arithmetic::narrow_brain:
      return known_bits(pd::narrow<bfloat16>(element_of<double>(a)));
    case Arithmetic::narrow_float:
      return known_bits(pd::narrow<float>(element_of<double>(a)));
    case Arithmetic::add_half:
      return known_bits(pd::add(element_of<float16>(a), element_of<float16>(b)));
    case Arithmetic::add_brain:
      return known_bits(pd::add(element_of<bfloat16>(a), element_of<bfloat16>(b)));
    case Arithmetic::add_float:
      return known_bits(pd::add(element_of<float>(a), element_of<float>(b)));
    case Arithmetic::add_double:
      return known_bits(pd::add(element_of<double>(a), element_of<double>(b)));
    case Arithmetic::sum_brain:
      return sum_of_three(element_of<bfloat16>(a), element_of<bfloat16>(b));
    case Arithmetic::sum_double:
      return sum_of_three(element_of<double>(a), element_of<double>(b));
    case Arithmetic::fixed32:  // of a number that fits
      return pd::fixed_cell<std::uint32_t>(static_cast<double>(static_cast<std::int64_t>(a) >> 31) * 0.25);
    case Arithmetic::fixed64:
      return pd::fixed_cell<std::uint64_t>(static_cast<double>(static_cast<std::int64_t>(a) >> 13) * 0.25);
    case Arithmetic::parameters: {
      const pd::ParameterRange range = pd::parameters_for(a >> 21, b % pd::kListChunk + 1);
      return std::uint64_t{range.first} << 32 | range.last;
    }
    case Arithmetic::high_product:
      return pd::high_product(a, b);
  }
  return 0;
}

// results[i] = compute(what, words[i], words[count - 1 - i]), computed by the device; all are in its memory.
cudaError_t compute_on_device(Arithmetic what, const std::uint64_t* words, std::uint64_t* results, std::uint64_t count,
                              cudaStream_t stream);

}  // namespace peel::testing
