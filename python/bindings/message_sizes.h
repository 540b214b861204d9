// Whether sizes that Python hands in fit a plan: a library that reads memory of strangers must not trust what they say
// about its length.
#pragma once

#include <cstdint>

#include "peel/plan.h"

namespace peel::python {

// Throw peel::Error.
void check_message_sizes(const Plan& plan, std::uint64_t words, std::uint64_t bytes);
void check_value_count(const Plan& plan, std::uint64_t items, std::uint64_t values);

}  // namespace peel::python
