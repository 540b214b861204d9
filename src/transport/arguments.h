// Whether a collective is asked for in a way that can be right, before anything moves.
#pragma once

#include "peel/communicator.h"

namespace peel::detail {

// Throws peel::Error (invalid_argument).
void check_arguments(const Collective& what, unsigned workers);

// Throws peel::Error (unsupported) for memory of a device, which most transports cannot reach.
void require_host_memory(const Collective& what, std::string_view transport);

}  // namespace peel::detail
