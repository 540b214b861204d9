// Errors of the library as classes of Python, one for each kind that programs treat differently.
#pragma once

#include <nanobind/nanobind.h>

namespace peel::python {

void bind_errors(nanobind::module_& m);

}  // namespace peel::python
