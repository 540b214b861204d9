// Where and when something was measured, for those who read the result later.
#pragma once

#include <string>

namespace peel::cli {

std::string machine();  // "2 cores, Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz"
std::string today();    // "2026-11-18", where this machine is

}  // namespace peel::cli
