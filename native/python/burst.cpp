#include "burst.h"

#include <utility>

#include "bindings.h"
#include "daqiri/error.h"
#include "gil.h"
#include "storage/file_write.h"

namespace daqiri::python {

namespace {

void check_segment(const Burst& burst, int segment) {
  const int n = burst.hdr.hdr.num_segs;
  if (segment >= 0 && segment < n) return;
  throw Error(Status::INVALID_PARAMETER,
              "no segment " + std::to_string(segment) + "; packets of this burst have " +
                  (n == 1 ? "segment 0 only" : "segments 0 to " + std::to_string(n - 1)));
}

}  // namespace

ReceivedBurst::ReceivedBurst(Burst* burst) : owner_(std::make_shared<BurstOwner>(burst)) {}

const std::shared_ptr<BurstOwner>& ReceivedBurst::owner() const {
  if (owner_ == nullptr) {
    throw Error(Status::INVALID_PARAMETER,
                "burst released: its buffers were given back; use it before release() or the end "
                "of its `with` block");
  }
  return owner_;
}

void ReceivedBurst::release() noexcept {
  lengths_ = py::object();
  base_ = py::object();
  owner_.reset();
}

py::handle ReceivedBurst::base() {
  if (!base_) base_ = owning_capsule(owner());
  return base_;
}

py::array ReceivedBurst::packet(const Burst& burst, std::size_t index, int segment) {
  const auto s = static_cast<std::size_t>(segment);
  return read_only_view(static_cast<const std::uint8_t*>(burst.pkts[s][index]),
                        burst.pkt_lens[s][index], base());
}

py::array ReceivedBurst::view(py::ssize_t index, int segment) {
  const Burst& burst = get();
  check_segment(burst, segment);
  const auto n = static_cast<py::ssize_t>(burst.num_packets());
  const py::ssize_t i = index < 0 ? index + n : index;
  if (i < 0 || i >= n) {
    throw py::index_error("packet " + std::to_string(index) + " of a burst of " +
                          std::to_string(n));
  }
  return packet(burst, static_cast<std::size_t>(i), segment);
}

py::list ReceivedBurst::views(const py::slice& slice, int segment) {
  const Burst& burst = get();
  check_segment(burst, segment);
  py::ssize_t start = 0;
  py::ssize_t stop = 0;
  py::ssize_t step = 0;
  py::ssize_t count = 0;
  if (!slice.compute(static_cast<py::ssize_t>(burst.num_packets()), &start, &stop, &step, &count)) {
    throw py::error_already_set();
  }
  py::list list(static_cast<std::size_t>(count));
  for (py::ssize_t k = 0; k < count; ++k) {
    list[static_cast<std::size_t>(k)] =
        packet(burst, static_cast<std::size_t>(start + k * step), segment);
  }
  return list;
}

py::array ReceivedBurst::segment_lengths(int segment) {
  const Burst& burst = get();
  check_segment(burst, segment);
  return read_only_view(burst.pkt_lens[static_cast<std::size_t>(segment)], burst.num_packets(),
                        base());
}

py::array ReceivedBurst::lengths() {
  const Burst& burst = get();
  if (burst.hdr.hdr.num_segs == 1) return segment_lengths(0);
  if (!lengths_) {
    std::vector<std::uint32_t> sums(burst.num_packets());
    for (std::uint32_t i = 0; i < burst.num_packets(); ++i) sums[i] = burst.packet_length(i);
    lengths_ = take_vector<std::uint32_t>(std::move(sums));
  }
  return py::reinterpret_borrow<py::array>(lengths_);
}

py::array ReceivedBurst::flow_ids() {
  const Burst& burst = get();
  return read_only_view(burst.flow_ids, burst.num_packets(), base());
}

py::array ReceivedBurst::timestamps() {
  const Burst& burst = get();
  return read_only_view(reinterpret_cast<const std::int64_t*>(burst.timestamps),
                        burst.num_packets(), base());
}

PacketTable ReceivedBurst::table() const {
  const Burst& burst = get();
  PacketTable packets;
  packets.packets = burst.num_packets();
  packets.pieces = static_cast<std::size_t>(burst.hdr.hdr.num_segs);
  packets.table.reserve(packets.packets * packets.pieces);
  for (std::size_t i = 0; i < packets.packets; ++i) {
    for (std::size_t s = 0; s < packets.pieces; ++s) {
      packets.table.push_back(
          {static_cast<const std::uint8_t*>(burst.pkts[s][i]), burst.pkt_lens[s][i]});
    }
  }
  return packets;
}

py::array ReceivedBurst::gather(const py::object& out) const {
  // Another thread may release the burst while this one copies without the lock.
  const std::shared_ptr<BurstOwner> held = owner();
  return gather_rows(table(), out);
}

py::tuple ReceivedBurst::gather_flat(const py::object& out) const {
  const std::shared_ptr<BurstOwner> held = owner();
  return python::gather_flat(table(), out);
}

void ReceivedBurst::write_pcap(const std::string& directory, const std::string& prefix,
                               bool nanosecond) const {
  const std::shared_ptr<BurstOwner> held = owner();
  const GilRelease unlocked;
  daqiri::write_pcap(**held, directory, prefix, nanosecond);
}

void ReceivedBurst::write_raw(const std::string& directory, const std::string& prefix,
                              std::uint64_t offset) const {
  const std::shared_ptr<BurstOwner> held = owner();
  const GilRelease unlocked;
  daqiri::write_raw(**held, directory, prefix, offset);
}

void bind_burst(py::module_& m) {
  py::class_<ReceivedBurst>(m, "Burst", "A received burst; wrapped by daqiri_ophyd.engine.Burst.")
      .def("__len__", &ReceivedBurst::size)
      .def_property_readonly("released", &ReceivedBurst::released)
      .def("release", &ReceivedBurst::release)
      .def("view", &ReceivedBurst::view, py::arg("index"), py::arg("segment") = 0)
      .def("views", &ReceivedBurst::views, py::arg("slice"), py::arg("segment") = 0)
      .def("lengths", &ReceivedBurst::lengths)
      .def("segment_lengths", &ReceivedBurst::segment_lengths, py::arg("segment"))
      .def("flow_ids", &ReceivedBurst::flow_ids)
      .def("timestamps", &ReceivedBurst::timestamps)
      .def("gather", &ReceivedBurst::gather, py::arg("out"))
      .def("gather_flat", &ReceivedBurst::gather_flat, py::arg("out"))
      .def("write_pcap", &ReceivedBurst::write_pcap, py::arg("directory"), py::arg("prefix"),
           py::arg("nanosecond"))
      .def("write_raw", &ReceivedBurst::write_raw, py::arg("directory"), py::arg("prefix"),
           py::arg("offset"))
      .def_property_readonly("nbytes",
                             [](const ReceivedBurst& b) { return b.get().hdr.hdr.nbytes; })
      .def_property_readonly("port_id",
                             [](const ReceivedBurst& b) { return b.get().hdr.hdr.port_id; })
      .def_property_readonly("queue_id",
                             [](const ReceivedBurst& b) { return b.get().hdr.hdr.q_id; })
      .def_property_readonly("connection_id",
                             [](const ReceivedBurst& b) { return b.get().connection_id; })
      .def_property_readonly("num_segments",
                             [](const ReceivedBurst& b) { return b.get().hdr.hdr.num_segs; });
}

}  // namespace daqiri::python
