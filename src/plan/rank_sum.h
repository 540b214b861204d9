// The sum of what several workers have at one place, in rank order and rounded once, host and device alike: the same
// bits whoever adds. Integers are added modulo their width, float64 in a pair of doubles, other floats in double.
#pragma once

#include <type_traits>

#include "plan/element_values.h"
#include "plan/host_device.h"

namespace peel::detail {

// A sum of doubles: a + b = s + e exactly (Knuth), the errors e summed beside.
struct DoublePair {
  double sum = 0;
  double error = 0;
};

template <typename T>
struct RankSumOf {
  using type = std::conditional_t<std::is_integral_v<T>, T, double>;
};
template <>
struct RankSumOf<double> {
  using type = DoublePair;
};
// What the sum of elements of the type T is kept in.
template <typename T>
using RankSum = typename RankSumOf<T>::type;

PEEL_HOST_DEVICE void accumulate(DoublePair& to, double value) {
  const double sum = add(to.sum, value);
  const double part = subtract(sum, to.sum);
  const double error = add(subtract(to.sum, subtract(sum, part)), subtract(value, part));
  to.sum = sum;
  if (error == error) to.error = add(to.error, error);  // infinities leave NaN here, which is not an error of rounding
}
template <typename T>
PEEL_HOST_DEVICE void accumulate(RankSum<T>& to, T value) {
  if constexpr (std::is_integral_v<T>) {
    to = add(to, value);
  } else {
    to = add(to, widen(value));
  }
}

template <typename T>
PEEL_HOST_DEVICE T rounded(const RankSum<T>& sum) {
  if constexpr (std::is_integral_v<T>) {
    return sum;
  } else if constexpr (std::is_same_v<T, double>) {
    return add(sum.sum, sum.error);
  } else {
    return narrow<T>(sum);
  }
}

}  // namespace peel::detail
