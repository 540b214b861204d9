// Plans and messages for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace peel::python {

void bind_codec(nanobind::module_& m);

}  // namespace peel::python
