// Checks and repairs files of frames.
#include <pybind11/stl.h>

#include "bindings.h"
#include "gil.h"
#include "storage/frame_repair.h"

namespace daqiri::python {

namespace py = pybind11;

namespace {

FoundFrames examine(const std::string& path, bool live) {
  const GilRelease unlocked;
  return examine_frames(path, live);
}

/// Other programs may have written text that is not UTF-8.
py::str readable(const std::string& text) {
  return py::reinterpret_steal<py::str>(
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

}  // namespace

void bind_frame_files(py::module_& m) {
  m.def(
      "examine_frames",
      [](const std::string& path, bool live) {
        const FoundFrames found = examine(path, live);
        py::dict facts;
        facts["plan"] = found.plan;
        facts["layout"] = found.layout;
        facts["compression"] = found.compression;
        facts["dtype"] = found.dtype;
        facts["shape"] = py::tuple(py::cast(found.shape));
        facts["frame_bytes"] = found.frame_bytes;
        facts["marked"] = found.marked;
        facts["lengths"] = py::dict(py::cast(found.lengths));
        facts["frames"] = found.frames;
        facts["empty"] = found.empty;
        facts["packets"] = found.packets;
        facts["missing"] = found.missing;
        facts["t_first_ns"] = found.t_first_ns;
        facts["t_last_ns"] = found.t_last_ns;
        py::dict metadata;
        for (const auto& [key, value] : found.metadata) metadata[py::str(key)] = readable(value);
        facts["metadata"] = metadata;
        facts["configuration"] = readable(found.configuration);
        facts["mode"] = readable(found.mode);
        return facts;
      },
      py::arg("path"), py::arg("live"));
  m.def(
      "cut_frames",
      [](const std::string& path, std::uint64_t frames, const std::string& plugin_folder) {
        const GilRelease unlocked;
        cut_frames(path, frames, plugin_folder);
      },
      py::arg("path"), py::arg("frames"), py::arg("plugin_folder"));
}

}  // namespace daqiri::python
