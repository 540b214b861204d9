#include "errors.h"

#include <array>
#include <exception>
#include <string>

#include "peel/error.h"

namespace peel::python {
namespace {

namespace nb = nanobind;

// A class of Python, and the code that its errors have unless they say otherwise.
nb::object make_class(nb::module_& m, const char* name, const char* doc, nb::handle bases, std::string_view code) {
  const std::string qualified = std::string("peelreduce.") + name;
  nb::object made = nb::steal(PyErr_NewExceptionWithDoc(qualified.c_str(), doc, bases.ptr(), nullptr));
  if (!made.is_valid()) nb::raise_python_error();
  made.attr("code") = nb::str(code.data(), code.size());
  m.attr(name) = made;
  return made;
}

// Classes live as long as the interpreter: a translator may be asked at any time.
std::array<PyObject*, 6>& classes() {
  static std::array<PyObject*, 6> all{};
  return all;
}
enum Class : std::size_t { error, timed_out, disagreement, not_finite, transport_failed, misuse };

Class class_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
    case ErrorCode::plan_mismatch:
    case ErrorCode::unsupported:
      return misuse;
    case ErrorCode::not_finite:
      return not_finite;
    case ErrorCode::disagreement:
      return disagreement;
    case ErrorCode::timeout:
      return timed_out;
    case ErrorCode::transport:
      return transport_failed;
    case ErrorCode::corrupt_message:
    case ErrorCode::overflow:
      return error;
  }
  return error;
}

void translate(const std::exception_ptr& thrown, void* /*unused*/) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& caught) {
    PyObject* kind = classes()[class_of(caught.code())];
    PyObject* made = PyObject_CallFunction(kind, "s", caught.what());
    if (made == nullptr) return;  // the error of that call is set instead
    const std::string_view code = name(caught.code());
    nb::handle(made).attr("code") = nb::str(code.data(), code.size());
    PyErr_SetObject(kind, made);
    Py_DECREF(made);
  }
}

}  // namespace

void bind_errors(nb::module_& m) {
  const auto keep = [](Class which, const nb::object& made) { classes()[which] = made.inc_ref().ptr(); };
  const nb::object base =
      make_class(m, "Error", "What the library raises; `code` names what went wrong.", PyExc_RuntimeError, "error");
  const auto add = [&](Class which, const char* name, const char* doc, ErrorCode code) {
    keep(which, make_class(m, name, doc, base, peel::name(code)));
  };
  keep(error, base);
  add(timed_out, "TimedOut", "A worker did not answer or did not come in time; the sentence names it if it is known.",
      ErrorCode::timeout);
  add(disagreement, "Disagreement",
      "Workers called with different arrays or options, or are at different places of the program.",
      ErrorCode::disagreement);
  add(not_finite, "NotFinite", "NaN or infinity where fixed-point numbers cannot hold it.", ErrorCode::not_finite);
  add(transport_failed, "TransportFailed", "A worker is gone or failed, or what connects the workers did.",
      ErrorCode::transport);
  const nb::object bases = nb::make_tuple(base, nb::handle(PyExc_ValueError));
  keep(misuse, make_class(m, "Misuse", "A call that cannot be right, here or on another worker.", bases,
                          peel::name(ErrorCode::invalid_argument)));
  nb::register_exception_translator(translate);
}

}  // namespace peel::python
