// Elements of any type as doubles, which hold all that is generated here exactly, and back.
#pragma once

#include <cstdint>
#include <span>

#include "peel/gradient.h"

namespace peel::cli {

// out[i] = element begin + i of x.
void read_elements(ConstDense x, std::uint64_t begin, std::span<double> out);

// Element begin + i of x = values[i], as `nearest` says.
void write_elements(Dense x, std::uint64_t begin, std::span<const double> values);

// The value that the type would hold: floats round to nearest even, integers wrap.
double nearest(double value, ElementType type);

// The distance from a value to the next one of its type; 0 for integers, whose sums are not rounded.
double spacing(double value, ElementType type);

// Integers up to 2^digits in magnitude are exact in this type.
int exact_digits(ElementType type);

}  // namespace peel::cli
