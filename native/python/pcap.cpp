// Index of pcap files, and copies of packets from flat data.
#include "storage/pcap_index.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "arrays.h"
#include "bindings.h"
#include "gil.h"
#include "system/mapped_file.h"

namespace daqiri::python {

namespace {

using Bytes = py::array_t<std::uint8_t, py::array::c_style>;
using Offsets = py::array_t<std::int64_t, py::array::c_style>;
using Lengths = py::array_t<std::uint32_t, py::array::c_style>;

py::tuple index(const MappedFile& file) {
  PcapIndexer indexer(file);
  run_steps([&] { return indexer.advance(); });
  file.require_whole();
  PcapIndex found = indexer.take();
  return py::make_tuple(found.link_type, found.snap_length, found.nanosecond, found.swapped,
                        found.torn_bytes, found.damage,
                        take_vector<std::int64_t>(std::move(found.offsets)),
                        take_vector<std::uint32_t>(std::move(found.lengths)),
                        take_vector<std::uint32_t>(std::move(found.wire_lengths)),
                        take_vector<std::int64_t>(std::move(found.timestamps)));
}

/// Copies the packets at `offsets` in `data` to rows, padded with zeros. The caller has checked
/// that they lie inside `data`.
py::array gather(const Bytes& data, const Offsets& offsets, const Lengths& lengths,
                 const py::object& out) {
  const auto n = static_cast<std::size_t>(offsets.size());
  const std::uint32_t* length = lengths.data();
  const std::size_t longest = n == 0 ? 0 : *std::max_element(length, length + n);
  auto rows = gather_target(out, {n, longest});
  std::uint8_t* to = rows.mutable_data();
  const auto width = static_cast<std::size_t>(rows.shape(1));
  const GilRelease unlocked;
  daqiri::gather_rows(data.data(), offsets.data(), length, n, to, width);
  return rows;
}

py::tuple unpack_pcapng(int from, int to, const std::string& name) {
  PcapngEnd end;
  run_steps(pcapng_conversion(from, to, name, end));
  return py::make_tuple(end.whole_bytes, end.torn_bytes);
}

}  // namespace

void bind_pcap(py::module_& m) {
  py::class_<MappedFile>(m, "MappedFile",
                         "A file mapped into memory; other processes may truncate it.")
      .def_property_readonly("data",
                             [](const py::object& self) {
                               const auto& file = self.cast<const MappedFile&>();
                               return read_only_view(file.data(), file.size(), self);
                             })
      .def("require_whole", &MappedFile::require_whole);
  m.def(
      "map_file",
      [](int fd, const std::string& name) { return std::make_unique<MappedFile>(fd, name); },
      py::arg("fd"), py::arg("name"));
  m.def("index_pcap", &index, py::arg("file"));
  m.def("gather", &gather, py::arg("data").noconvert(), py::arg("offsets").noconvert(),
        py::arg("lengths").noconvert(), py::arg("out"));
  m.def("unpack_pcapng", &unpack_pcapng, py::arg("from_fd"), py::arg("to_fd"), py::arg("name"));
}

}  // namespace daqiri::python
