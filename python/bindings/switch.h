// The transport over a switch, where this build has one.
#pragma once

#include <nanobind/nanobind.h>

namespace peel::python {

void bind_switch(nanobind::module_& m);

}  // namespace peel::python
