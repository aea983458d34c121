// The documented functions on bursts, packets, receiving and files, for Python.
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "api/call.h"
#include "bindings.h"
#include "buffer_bytes.h"
#include "burst/burst.h"
#include "burst_params.h"

namespace daqiri::python {

namespace {

using Path = std::filesystem::path;

/// None if the call does not give a length.
using Length = std::optional<std::size_t>;

/// (status, burst or None)
py::tuple as_tuple(Status status, BurstParams* burst) {
  if (burst == nullptr) return py::make_tuple(status_object(status), py::none());
  return py::make_tuple(status_object(status), std::make_unique<BurstHandle>(burst));
}

py::tuple next_burst(std::optional<int> port, std::optional<int> queue) {
  if (queue && !port) throw py::type_error("get_rx_burst: a queue needs its port");
  BurstParams* burst = nullptr;
  Status status{};
  {
    const GilRelease unlocked;
    status = queue  ? get_rx_burst(&burst, *port, *queue)
             : port ? get_rx_burst(&burst, *port)
                    : get_rx_burst(&burst);
  }
  return as_tuple(status, burst);
}

py::tuple next_of_connection(std::uintptr_t connection, bool server) {
  BurstParams* burst = nullptr;
  Status status{};
  {
    const GilRelease unlocked;
    status = get_rx_burst(&burst, connection, server);
  }
  return as_tuple(status, burst);
}

void copy_bytes(void* to, const void* from, std::size_t n) {
  // For shorter copies, taking the lock back costs more than other threads gain.
  constexpr std::size_t LONG = 16384;
  std::optional<GilRelease> unlocked;
  if (n >= LONG) unlocked.emplace();
  if (n > 0) std::memcpy(to, from, n);
}

/// The burst, if the CPU can access the bytes of this packet.
api::Held packet_of(const char* call, BurstParams* params, int segment, int index) noexcept {
  api::Held burst(call, params);
  burst.segment(segment).packet(index);
  burst
      .require(!burst || burst->buffers[segment][index] != NO_BUFFER, Status::NULL_PTR,
               "the packet was freed")
      .require(!burst || burst->host_readable(segment), Status::NOT_SUPPORTED,
               "the segment is in memory that the CPU cannot access; use its address on the "
               "device, or a memory region of kind 'host'");
  return burst;
}

Status copy_into(const char* call, BurstHandle* handle, int segment, int index,
                 const py::buffer& data, Length nbytes, std::size_t src_offset,
                 std::size_t dst_offset) {
  const BufferBytes source(data);
  const BurstHandle::Use use(handle);
  api::Held burst = packet_of(call, use.get(), segment, index);
  burst.alone().require(!burst || burst->transmit, Status::INVALID_PARAMETER,
                        "a receive burst is read only");
  if (!burst) return burst.status();
  if (src_offset > source.size() || nbytes.value_or(0) > source.size() - src_offset) {
    return burst.refuse(Status::INVALID_PARAMETER, nbytes.value_or(0), " bytes from byte ",
                        src_offset, " on of data that has ", source.size());
  }
  const std::size_t n = nbytes.value_or(source.size() - src_offset);
  const std::size_t room = burst->owners[segment]->buf_size();
  if (dst_offset > room || n > room - dst_offset) {
    return burst.refuse(Status::INVALID_PARAMETER, "packet ", index, ": ", n, " bytes at byte ",
                        dst_offset, " of a buffer of ", room, " (buf_size)");
  }
  copy_bytes(static_cast<std::uint8_t*>(burst->pkts[segment][index]) + dst_offset,
             source.data() + src_offset, n);
  return Status::SUCCESS;
}

/// (status, bytes), at most the bytes of the packet.
py::tuple bytes_of(const char* call, BurstHandle* handle, int segment, int index, Length nbytes,
                   std::size_t src_offset) {
  py::bytes copied;
  const Status status = [&] {
    const BurstHandle::Use use(handle);
    api::Held burst = packet_of(call, use.get(), segment, index);
    if (!burst) return burst.status();
    // In a packet to send, written bytes may be read before the length is set.
    const std::size_t size = burst->transmit && nbytes ? burst->owners[segment]->buf_size()
                                                       : burst->pkt_lens[segment][index];
    if (src_offset > size) {
      return burst.refuse(Status::INVALID_PARAMETER, "byte ", src_offset, " of packet ", index,
                          ", which has ", size);
    }
    const std::size_t n = std::min(nbytes.value_or(size), size - src_offset);
    // The garbage collector does not track bytes, so no other code runs here.
    PyObject* object = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(n));
    if (object == nullptr) throw py::error_already_set();
    copied = py::reinterpret_steal<py::bytes>(object);
    copy_bytes(PyBytes_AS_STRING(object),
               static_cast<const std::uint8_t*>(burst->pkts[segment][index]) + src_offset, n);
    return Status::SUCCESS;
  }();
  return py::make_tuple(status_object(status), copied);
}

/// Wraps a function that frees a burst.
auto freeing(void (*function)(BurstParams*)) {
  return [function](BurstHandle* handle) {
    const BurstHandle::Use use(handle);
    function(use.take());
  };
}

/// Frees the burst only if it has the segment.
void free_segment_and_burst(BurstHandle* handle, int segment) {
  const BurstHandle::Use use(handle);
  if (api::Held("free_segment_packets_and_burst", use.get()).segment(segment))
    free_segment_packets_and_burst(use.take(), segment);
}

py::tuple rx_timestamp(BurstHandle* handle, int index) {
  std::uint64_t ns = 0;
  const Status status = [&] {
    const BurstHandle::Use use(handle);
    return get_packet_rx_timestamp(use.get(), index, &ns);
  }();
  return py::make_tuple(status_object(status), ns);
}

std::unique_ptr<BurstHandle> created(BurstParams* (*create)()) {
  BurstParams* burst = create();
  return burst == nullptr ? nullptr : std::make_unique<BurstHandle>(burst);
}

void bind_files(py::module_& m) {
  m.def(
      "daqiri_write_raw_to_file",
      [](BurstHandle* handle, const Path& directory, const std::string& prefix,
         std::uint64_t offset) {
        return on_burst_unlocked(&daqiri_write_raw_to_file)(handle, directory.string(), prefix,
                                                            offset);
      },
      py::arg("burst"), py::arg("absolute_path"), py::arg("file_prefix"),
      py::arg("packet_data_offset"), "Write each packet to a separate file.");
  m.def(
      "daqiri_write_pcap_to_file",
      [](BurstHandle* handle, const Path& directory, const std::string& prefix) {
        return on_burst_unlocked(&daqiri_write_pcap_to_file)(handle, directory.string(), prefix);
      },
      py::arg("burst"), py::arg("absolute_path"), py::arg("file_prefix"),
      "Append the packets to a pcap file, with times in microseconds.");
}

void bind_freeing(py::module_& m) {
  m.def("free_packet", on_burst(&free_packet), py::arg("burst"), py::arg("idx"),
        "Free the buffers of a packet.");
  m.def("free_packet_segment", on_burst(&free_packet_segment), py::arg("burst"), py::arg("seg"),
        py::arg("idx"), "Free the buffer of one segment of a packet.");
  m.def("free_all_segment_packets", on_burst(&free_all_segment_packets), py::arg("burst"),
        py::arg("seg"), "Free the buffers of one segment of all packets.");
  m.def("free_segment_packets_and_burst", &free_segment_and_burst, py::arg("burst"), py::arg("seg"),
        "Free a burst, with all buffers that it still has.");
  const std::pair<const char*, void (*)(BurstParams*)> whole[] = {
      {"free_all_packets_and_burst_rx", &free_all_packets_and_burst_rx},
      {"free_all_packets_and_burst_tx", &free_all_packets_and_burst_tx},
      {"free_rx_burst", &free_rx_burst},
      {"free_tx_burst", &free_tx_burst},
      {"free_rx_metadata", &free_rx_metadata},
      {"free_tx_metadata", &free_tx_metadata},
  };
  for (const auto& [name, function] : whole) {
    m.def(name, freeing(function), py::arg("burst"),
          "Free a burst, with all buffers that it still has.");
  }
}

void bind_reading(py::module_& m) {
  m.def("get_packet_ptr", on_burst(&get_packet_ptr), py::arg("burst"), py::arg("idx"),
        "Address of a packet's first segment; 0 if freed, or no such packet.");
  m.def("get_segment_packet_ptr", on_burst(&get_segment_packet_ptr), py::arg("burst"),
        py::arg("seg"), py::arg("idx"), "Address of a segment of a packet; 0 if none.");
  m.def("get_packet_length", on_burst(&get_packet_length), py::arg("burst"), py::arg("idx"),
        "Bytes of a packet, over all segments.");
  m.def("get_segment_packet_length", on_burst(&get_segment_packet_length), py::arg("burst"),
        py::arg("seg"), py::arg("idx"), "Bytes of a packet in one segment.");
  m.def("get_packet_flow_id", on_burst(&get_packet_flow_id), py::arg("burst"), py::arg("idx"),
        "Flow that a packet matched; 0 if none.");
  m.def("get_packet_rx_timestamp", &rx_timestamp, py::arg("burst"), py::arg("idx"),
        "Return the status and a packet's arrival time, ns.");
  m.def(
      "get_segment_packet_bytes",
      [](BurstHandle* handle, int seg, int idx, Length nbytes, std::size_t src_offset) {
        return bytes_of("get_segment_packet_bytes", handle, seg, idx, nbytes, src_offset);
      },
      py::arg("burst"), py::arg("seg"), py::arg("idx"), py::arg("nbytes") = py::none(),
      py::arg("src_offset") = 0,
      "Return the status and a copy of a segment of a packet: all of it, or up to nbytes.");
  m.def(
      "get_packet_bytes",
      [](BurstHandle* handle, int idx, Length nbytes, std::size_t src_offset) {
        return bytes_of("get_packet_bytes", handle, 0, idx, nbytes, src_offset);
      },
      py::arg("burst"), py::arg("idx"), py::arg("nbytes") = py::none(), py::arg("src_offset") = 0,
      "Return the status and a copy of a packet's first segment: all of it, or up to nbytes.");
}

void bind_copying(py::module_& m) {
  m.def(
      "copy_buffer_to_segment_packet",
      [](BurstHandle* handle, int seg, int idx, const py::buffer& data, Length nbytes,
         std::size_t src_offset, std::size_t dst_offset) {
        return status_object(copy_into("copy_buffer_to_segment_packet", handle, seg, idx, data,
                                       nbytes, src_offset, dst_offset));
      },
      py::arg("burst"), py::arg("seg"), py::arg("idx"), py::arg("data"),
      py::arg("nbytes") = py::none(), py::arg("src_offset") = 0, py::arg("dst_offset") = 0,
      "Copy bytes to a segment of a packet to send.");
  m.def(
      "copy_buffer_to_packet",
      [](BurstHandle* handle, int idx, const py::buffer& data, Length nbytes,
         std::size_t src_offset, std::size_t dst_offset) {
        return status_object(copy_into("copy_buffer_to_packet", handle, 0, idx, data, nbytes,
                                       src_offset, dst_offset));
      },
      py::arg("burst"), py::arg("idx"), py::arg("data"), py::arg("nbytes") = py::none(),
      py::arg("src_offset") = 0, py::arg("dst_offset") = 0,
      "Copy bytes to the first segment of a packet to send.");
}

/// An impossible port or queue, such as the -1 of get_port_id, becomes one that does not exist.
void set_header_of(BurstParams* burst, std::int64_t port, std::int64_t queue, std::int64_t packets,
                   int segments) {
  const auto number = [](std::int64_t value) {
    constexpr std::uint16_t NONE = 0xFFFF;
    return value >= 0 && value < NONE ? static_cast<std::uint16_t>(value) : NONE;
  };
  set_header(burst, number(port), number(queue), packets, segments);
}

}  // namespace

void bind_packet_calls(py::module_& m) {
  m.def(
      "create_burst_params", [] { return created(&create_burst_params); },
      "Return an empty burst to send; None if all are in use.");
  m.def(
      "create_tx_burst_params", [] { return created(&create_tx_burst_params); },
      "Return an empty burst to send; None if all are in use.");
  m.def("set_header", on_burst(&set_header_of), py::arg("burst"), py::arg("port"), py::arg("q"),
        py::arg("num"), py::arg("segs"),
        "Set the queue of a burst, and its numbers of packets and segments.");
  m.def("set_num_packets", on_burst(&set_num_packets), py::arg("burst"), py::arg("num"),
        "Set the number of packets to allocate or to send.");
  m.def("get_num_packets", on_burst(&get_num_packets), py::arg("burst"),
        "Packets of a burst; 0 if there is no burst.");
  m.def("get_q_id", on_burst(&get_q_id), py::arg("burst"), "Queue of a burst; -1 if no burst.");
  m.def("get_burst_tot_byte", on_burst(&get_burst_tot_byte), py::arg("burst"),
        "Bytes of all packets of a burst.");
  m.def("get_connection_id", on_burst(&get_connection_id), py::arg("burst"),
        "Connection that a burst arrived on, or is sent on; 0 if none.");
  m.def("set_connection_id", on_burst(&set_connection_id), py::arg("burst"), py::arg("conn_id"),
        "Set the connection that a burst is sent on.");
  m.def("get_rx_burst", &next_burst, py::arg("port") = py::none(), py::arg("q") = py::none(),
        "Return the status and the next burst of a queue, of a port, or of all ports in turn; None "
        "if there is none yet.");
  m.def("get_rx_burst_for_connection", &next_of_connection, py::arg("conn_id"), py::arg("server"),
        "Return the status and the next burst of a connection; None if there is none yet.");
  bind_reading(m);
  bind_copying(m);
  bind_freeing(m);
  bind_files(m);
}

}  // namespace daqiri::python
