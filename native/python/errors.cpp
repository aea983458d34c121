// Errors of the engine as Python exceptions.
#include <pybind11/native_enum.h>

#include <array>
#include <cstddef>
#include <exception>
#include <string>
#include <utility>

#include "bindings.h"
#include "burst_params.h"
#include "daqiri/error.h"
#include "gil.h"

namespace daqiri::python {

namespace py = pybind11;

void check_signals() {
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

namespace {

/// The exception class of each status, indexed by its number and set by engine/_errors.py. Never
/// freed: errors can be raised until the process ends.
PyObject* classes = nullptr;

/// Members of Status, indexed by their numbers. Never freed.
std::array<PyObject*, static_cast<std::size_t>(Status::INTERNAL_ERROR) + 1> members{};

/// Does not run Python code, which may already be unloaded.
void raise(const Error& error) noexcept {
  const auto number = static_cast<Py_ssize_t>(error.status());
  PyObject* kind = classes == nullptr ? nullptr : PyTuple_GetItem(classes, number);
  if (kind == nullptr) PyErr_Clear();
  PyErr_SetString(kind == nullptr ? PyExc_RuntimeError : kind, error.what());
}

}  // namespace

py::object status_object(Status status) {
  return py::reinterpret_borrow<py::object>(members.at(static_cast<std::size_t>(status)));
}

void bind_errors(py::module_& m) {
  py::native_enum<Status> status(m, "Status", "enum.IntEnum",
                                 "Result codes of the engine, in their documented order.");
  for (int i = 0; i <= static_cast<int>(Status::INTERNAL_ERROR); ++i) {
    const auto value = static_cast<Status>(i);
    status.value(std::string(status_name(value)).c_str(), value);
  }
  status.finalize();
  const py::object all = m.attr("Status");
  // In text, a status appears as its name, like a member of any other enumeration.
  const py::object plain = py::module_::import("enum").attr("Enum");
  for (const char* name : {"__str__", "__format__"}) py::setattr(all, name, plain.attr(name));
  for (std::size_t i = 0; i < members.size(); ++i) Py_XSETREF(members[i], all(i).release().ptr());

  m.def(
      "set_error_classes",
      [](py::tuple by_status) { Py_XSETREF(classes, by_status.release().ptr()); },
      py::arg("by_status"));
  py::register_local_exception_translator([](std::exception_ptr thrown) {
    if (!thrown) return;
    try {
      std::rethrow_exception(std::move(thrown));
    } catch (const Error& error) {
      raise(error);
    }
  });
}

}  // namespace daqiri::python
