// Kernels that process frames and the streams of reorder plans, set from Python.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <string>
#include <vector>

#include "bindings.h"
#include "frames.h"
#include "gil.h"

namespace daqiri::python {

namespace py = pybind11;

namespace {

reorder::FrameKernel::Type type_of(const py::dtype& dtype) {
  return {.kind = dtype.kind(), .bytes = static_cast<std::size_t>(dtype.itemsize())};
}

}  // namespace

void bind_frame_kernel(py::class_<OpenSession, std::shared_ptr<OpenSession>>& session) {
  session
      .def(
          "set_frame_kernel",
          [](const OpenSession& open, int port, std::size_t position, std::string source,
             std::string name, const py::dtype& element, const std::vector<py::array>& arrays) {
            reorder::RunningPlan& plan = open.session().reorder_plans(port).at(position);
            reorder::FrameKernel kernel{.source = std::move(source),
                                        .name = std::move(name),
                                        .element = type_of(element),
                                        .arrays = {}};
            for (const py::array& array : arrays) {
              kernel.arrays.push_back({.element = type_of(array.dtype()),
                                       .data = {static_cast<const std::byte*>(array.data()),
                                                static_cast<std::size_t>(array.nbytes())}});
            }
            const GilRelease unlocked;
            plan.set_kernel(&kernel);
          },
          py::arg("port"), py::arg("position"), py::arg("source"), py::arg("name"),
          py::arg("element"), py::arg("arrays"))
      .def(
          "remove_frame_kernel",
          [](const OpenSession& open, int port, std::size_t position) {
            reorder::RunningPlan& plan = open.session().reorder_plans(port).at(position);
            const GilRelease unlocked;
            plan.set_kernel(nullptr);
          },
          py::arg("port"), py::arg("position"))
      .def(
          "set_stream",
          [](const OpenSession& open, int port, std::size_t position, std::uintptr_t stream) {
            reorder::RunningPlan& plan = open.session().reorder_plans(port).at(position);
            const GilRelease unlocked;
            // NOLINTNEXTLINE(performance-no-int-to-ptr): Python gives the address as an integer
            plan.set_stream(reinterpret_cast<void*>(stream));
          },
          py::arg("port"), py::arg("position"), py::arg("stream"));
}

}  // namespace daqiri::python
