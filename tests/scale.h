// How much work a test does. PEEL_TEST_SCALE=small says that a sanitizer is watching, which makes everything ten times
// as slow; PEEL_TEST_SCALE=large that there is time for as many cases as a claim was made for; PEEL_TEST_HUGE=1 that
// there is memory for arrays of several gigabytes.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace peel::testing {

inline bool environment_says(const char* variable, std::string_view value) {
  const char* set = std::getenv(variable);
  return set != nullptr && value == set;
}

inline bool small_scale() { return environment_says("PEEL_TEST_SCALE", "small"); }
inline bool large_scale() { return environment_says("PEEL_TEST_SCALE", "large"); }
inline bool huge_scale() { return environment_says("PEEL_TEST_HUGE", "1"); }

inline std::uint64_t scaled(std::uint64_t full, std::uint64_t small) { return small_scale() ? small : full; }

}  // namespace peel::testing
