// The verbs of the codec on a GPU for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace peel::python {

void bind_verbs_on_gpus(nanobind::module_& m);

}  // namespace peel::python
