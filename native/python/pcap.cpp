// Index of pcap files, and copies of packets out of flat data.
#include "storage/pcap_index.h"

#include <pybind11/stl.h>

#include <string>
#include <utility>

#include "arrays.h"
#include "bindings.h"
#include "daqiri/error.h"
#include "gil.h"

namespace daqiri::python {

namespace {

using Bytes = py::array_t<std::uint8_t, py::array::c_style>;
using Offsets = py::array_t<std::int64_t, py::array::c_style>;

py::tuple index(const Bytes& data, const std::string& name) {
  PcapIndex found;
  {
    const GilRelease unlocked;
    found = index_pcap(data.data(), static_cast<std::uint64_t>(data.size()), name);
  }
  return py::make_tuple(found.link_type, found.snap_length, found.nanosecond, found.swapped,
                        found.torn_bytes, take_vector<std::int64_t>(std::move(found.offsets)),
                        take_vector<std::uint32_t>(std::move(found.lengths)),
                        take_vector<std::uint32_t>(std::move(found.wire_lengths)),
                        take_vector<std::int64_t>(std::move(found.timestamps)));
}

/// Packets at `offsets` in `data`, padded with 0 to rows. The caller has checked that they lie
/// inside.
py::array gather(const Bytes& data, const Offsets& offsets, const Offsets& lengths,
                 const py::object& out) {
  PacketTable packets;
  packets.packets = static_cast<std::size_t>(offsets.size());
  packets.table.reserve(packets.packets);
  for (py::ssize_t i = 0; i < offsets.size(); ++i) {
    packets.table.push_back(
        {data.data() + offsets.data()[i], static_cast<std::size_t>(lengths.data()[i])});
  }
  return gather_rows(packets, out);
}

}  // namespace

void bind_pcap(py::module_& m) {
  m.def("index_pcap", &index, py::arg("data").noconvert(), py::arg("name"));
  m.def("gather", &gather, py::arg("data").noconvert(), py::arg("offsets"), py::arg("lengths"),
        py::arg("out"));
}

}  // namespace daqiri::python
