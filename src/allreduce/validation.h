// Whether the arguments of an exchange can be what they are.
#pragma once

#include <string>

#include "allreduce/history.h"
#include "allreduce/summed_array.h"
#include "peel/exchange.h"

namespace peel::detail {

// What is wrong with them, a sentence that goes on "Worker 2 cannot take part: ", or nothing. `backend` becomes the one
// that the options name, or the environment where they name none; where the array lies on a device, none is needed.
std::string refusal(const StateOptions& options, const World& world, const SummedArray& array, Backend& backend);

}  // namespace peel::detail
