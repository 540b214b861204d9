// What a process needs to load a program into the kernel is far more than it needs to serve: this gives the rest up.
#pragma once

#include <functional>

namespace peel::aggregator {

// Gives up, for good, of the calling thread and of those it starts from then on: all capabilities, from all sets, the
// way to get any by running a program, and all system calls but those that serving takes, which fail with EPERM. The
// user stays, so that it can still read its files. `serves` tells whether the maps of the kernel can still be used;
// CAP_BPF is kept where they can not without. Throws peel::Error.
void give_up_privileges(const std::function<bool()>& serves);

}  // namespace peel::aggregator
