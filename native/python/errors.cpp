// Errors of the engine as Python exceptions.
#include <pybind11/native_enum.h>

#include <exception>
#include <string>
#include <utility>

#include "bindings.h"
#include "daqiri/error.h"
#include "gil.h"

namespace daqiri::python {

namespace py = pybind11;

void check_signals() {
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

namespace {

/// Raise the exception class of the status; the classes are Python's (engine/_errors.py).
void raise(const Error& error) {
  const py::object exception = py::module_::import("daqiri_ophyd.engine._errors")
                                   .attr("error_for")(error.status(), error.what());
  PyErr_SetObject(py::type::of(exception).ptr(), exception.ptr());
}

}  // namespace

void bind_errors(py::module_& m) {
  py::native_enum<Status> status(m, "Status", "enum.IntEnum",
                                 "Result codes of the engine, in their documented order.");
  for (int i = 0; i <= static_cast<int>(Status::INTERNAL_ERROR); ++i) {
    const auto value = static_cast<Status>(i);
    status.value(std::string(status_name(value)).c_str(), value);
  }
  status.finalize();

  py::register_local_exception_translator([](std::exception_ptr thrown) {
    if (!thrown) return;
    try {
      std::rethrow_exception(std::move(thrown));
    } catch (const Error& error) {
      try {
        raise(error);
      } catch (py::error_already_set& failed) {
        failed.restore();
      }
    }
  });
}

}  // namespace daqiri::python
