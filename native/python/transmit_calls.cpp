// The documented functions that fill and send bursts, for Python.
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string>

#include "api/call.h"
#include "bindings.h"
#include "buffer_bytes.h"
#include "burst_params.h"

namespace daqiri::python {

namespace {

/// -1, which no packet has, for an integer that is too large. Raises TypeError for anything but an
/// integer.
std::int64_t length_of(const py::object& item) {
  if (PyIndex_Check(item.ptr()) == 0) {
    throw py::type_error("found " + std::string(py::repr(item)) +
                         " as the length of a segment; accepted are integers");
  }
  const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(item.ptr()));
  if (!number) throw py::error_already_set();
  int too_large = 0;
  const long long length = PyLong_AsLongLongAndOverflow(number.ptr(), &too_large);
  return too_large != 0 ? -1 : length;
}

/// Lengths of segments, from any sequence of integers. `count` is the real number, also if it is
/// too large.
struct SegmentValues {
  explicit SegmentValues(const py::sequence& lengths) : count(lengths.size()) {
    for (std::size_t i = 0; i < count && i < values.size(); ++i) values[i] = length_of(lengths[i]);
  }
  std::array<std::int64_t, MAX_NUM_SEGS> values{};
  std::size_t count;
};

py::object set_lengths(BurstHandle* handle, int index, const py::sequence& lengths) {
  const SegmentValues all(lengths);
  return on_burst(&detail::set_lengths)(handle, index, all.values.data(), all.count);
}

py::object set_all_lengths(BurstHandle* handle, const py::sequence& lengths) {
  const SegmentValues all(lengths);
  return on_burst(&detail::set_all_lengths)(handle, all.values.data(), all.count);
}

py::object set_ethernet(BurstHandle* handle, int index, const std::string& destination) {
  std::array<char, 6> mac{};
  format_eth_addr(mac.data(), destination);
  // Do not set an address of zeros: format_eth_addr has already reported the reason.
  if (mac == std::array<char, 6>{} && destination != "00:00:00:00:00:00")
    return status_object(Status::INVALID_PARAMETER);
  return on_burst(&set_eth_header)(handle, index, mac.data());
}

py::object set_payload(BurstHandle* handle, int index, const py::buffer& data) {
  const BufferBytes bytes(data);
  // A size above INT_MAX is reduced to it; the call then rejects it as too long.
  constexpr std::size_t MOST = std::numeric_limits<int>::max();
  return on_burst(&set_udp_payload)(handle, index, bytes.data(),
                                    static_cast<int>(std::min(bytes.size(), MOST)));
}

py::object send_burst(BurstHandle* handle) {
  Status status{};
  {
    const BurstHandle::Use use(handle);
    {
      const GilRelease unlocked;
      status = send_tx_burst(use.get());
    }
    const bool consumed = status == Status::SUCCESS || status == Status::NO_SPACE_AVAILABLE ||
                          status == Status::CONNECT_FAILURE;
    if (consumed) use.take();
  }
  return status_object(status);
}

}  // namespace

void bind_transmit_calls(py::module_& m) {
  m.def("is_tx_burst_available", on_burst_unlocked(&is_tx_burst_available), py::arg("burst"),
        "Whether buffers for get_tx_packet_burst are free now.");
  m.def("get_tx_packet_burst", on_burst_unlocked(&get_tx_packet_burst), py::arg("burst"),
        "Allocate the buffers requested by set_header.");
  m.def("set_eth_header", &set_ethernet, py::arg("burst"), py::arg("idx"), py::arg("dst_addr"),
        "Write a packet's Ethernet header, to aa:bb:cc:dd:ee:ff from the port's address.");
  m.def("set_ipv4_header", on_burst(&set_ipv4_header), py::arg("burst"), py::arg("idx"),
        py::arg("ip_len"), py::arg("proto"), py::arg("src_host"), py::arg("dst_host"),
        "Write a packet's IPv4 header for ip_len bytes after it; addresses are integers.");
  m.def("set_udp_header", on_burst(&set_udp_header), py::arg("burst"), py::arg("idx"),
        py::arg("udp_len"), py::arg("src_port"), py::arg("dst_port"),
        "Write a packet's UDP header for udp_len bytes after it.");
  m.def("set_udp_payload", &set_payload, py::arg("burst"), py::arg("idx"), py::arg("data"),
        "Copy the payload after a packet's headers.");
  m.def("set_packet_lengths", &set_lengths, py::arg("burst"), py::arg("idx"), py::arg("lens"),
        "Set the number of bytes to send of a packet, for each segment.");
  m.def("set_all_packet_lengths", &set_all_lengths, py::arg("burst"), py::arg("lens"),
        "Set the number of bytes to send of every packet, for each segment.");
  m.def("set_packet_tx_time", on_burst(&set_packet_tx_time), py::arg("burst"), py::arg("idx"),
        py::arg("time"), "Set a packet's launch time in ns; 0 sends it immediately.");
  m.def("send_tx_burst", &send_burst, py::arg("burst"),
        "Send a burst, which is empty after SUCCESS, NO_SPACE_AVAILABLE and CONNECT_FAILURE.");
}

}  // namespace daqiri::python
