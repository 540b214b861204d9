// The largest magnitude in a gradient: what the scale of fixed-point cells must leave room for.
#pragma once

#include "peel/gradient.h"

namespace peel::cli {

double largest_magnitude(ConstDense x);  // among the finite values of a floating-point array; 0 for integers

}  // namespace peel::cli
