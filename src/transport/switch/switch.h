// The communicator over any way to a switch.
#pragma once

#include <memory>

#include "peel/switch.h"
#include "transport/switch/port.h"

namespace peel::detail {

// Of the options, address and mtu are the port's business.
std::unique_ptr<Communicator> make_switch_over(std::unique_ptr<Port> port, const SwitchOptions& options);

}  // namespace peel::detail
