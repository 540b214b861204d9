// Whether a collective is asked for in a way that can be right, before anything moves.
#pragma once

#include "peel/communicator.h"

namespace peel::detail {

// Throws peel::Error (invalid_argument).
void check_arguments(const Collective& what, unsigned workers);

}  // namespace peel::detail
