#include "arrays.h"

#include <string>

#include "daqiri/error.h"

namespace daqiri::python {

py::array_t<std::uint8_t> gather_target(const py::object& out,
                                        const std::vector<std::size_t>& shape) {
  if (out.is_none()) return py::array_t<std::uint8_t>(shape);
  const auto text = [](const auto& sizes, std::size_t n) {
    std::string joined;
    for (std::size_t i = 0; i < n; ++i) joined += (i == 0 ? "" : ", ") + std::to_string(sizes[i]);
    return "(" + joined + (n == 1 ? ",)" : ")");
  };
  const std::string wanted = "; gather needs C-contiguous, writable uint8 of shape " +
                             text(shape, shape.size()) + ", or a longer last axis";
  if (!py::isinstance<py::array>(out)) {
    throw Error(Status::INVALID_PARAMETER,
                "out is " + py::repr(py::type::of(out)).cast<std::string>() + wanted);
  }
  const auto array = py::reinterpret_borrow<py::array>(out);
  const auto ndim = static_cast<std::size_t>(array.ndim());
  bool fits = ndim == shape.size() && array.dtype().is(py::dtype::of<std::uint8_t>()) &&
              array.writeable() && (array.flags() & py::array::c_style) != 0;
  for (std::size_t d = 0; fits && d < ndim; ++d) {
    const auto have = static_cast<std::size_t>(array.shape()[d]);
    fits = d + 1 == ndim ? have >= shape[d] : have == shape[d];
  }
  if (!fits) {
    throw Error(Status::INVALID_PARAMETER, "out is " +
                                               std::string(array.writeable() ? "" : "read-only ") +
                                               py::str(array.dtype()).cast<std::string>() +
                                               " of shape " + text(array.shape(), ndim) + wanted);
  }
  return py::reinterpret_borrow<py::array_t<std::uint8_t>>(out);
}

}  // namespace daqiri::python
