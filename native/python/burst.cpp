#include "burst.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "bindings.h"
#include "daqiri/error.h"
#include "device_array.h"
#include "device_packets.h"
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

/// Throws Error NOT_SUPPORTED for frames in a GPU's memory.
py::object packet(const ReceivedBurst& received, const ReceivedBurst::Share& burst,
                  std::size_t index, int segment) {
  if (burst->is_on_device(segment)) return py::cast(packet_on_device(received, segment, index));
  if (!burst->host_readable(segment)) require_host_readable(*burst, "shown as arrays");
  const auto s = static_cast<std::size_t>(segment);
  return read_only_view(static_cast<const std::uint8_t*>(burst->pkts[s][index]),
                        burst->pkt_lens[s][index], burst.base());
}

/// Segments [first, end) of packets.
struct Segments {
  int first;
  int end;

  [[nodiscard]] std::uint32_t length(const Burst& burst, std::uint32_t packet) const noexcept {
    std::uint32_t length = 0;
    for (int s = first; s < end; ++s) length += burst.pkt_lens[s][packet];
    return length;
  }
};

/// Copies a packet and returns the end of the copy.
std::uint8_t* append(std::uint8_t* to, const Burst& burst, std::uint32_t packet,
                     const Segments& segments) noexcept {
  for (int s = segments.first; s < segments.end; ++s) {
    const std::uint32_t length = burst.pkt_lens[s][packet];
    if (length == 0) continue;
    std::memcpy(to, burst.pkts[s][packet], length);
    to += length;
  }
  return to;
}

}  // namespace

ReceivedBurst::ReceivedBurst(Burst* burst)
    : burst_(burst),
      base_(py::capsule(burst, [](void* p) { static_cast<Burst*>(p)->release(); })) {}

ReceivedBurst::~ReceivedBurst() = default;

ReceivedBurst::Share ReceivedBurst::share() const {
  py::object base;
  {
    const std::lock_guard lock(mutex_);
    base = base_;
  }
  if (!base) {
    throw Error(Status::INVALID_PARAMETER,
                "burst released: its buffers were freed; use it before release() or the end "
                "of its `with` block");
  }
  return {std::move(base), *burst_};
}

std::unique_ptr<BurstHold> ReceivedBurst::hold() const {
  const Share shared = share();
  return std::make_unique<BurstHold>(*burst_);
}

std::shared_ptr<DeviceHold> ReceivedBurst::device_hold(int segment, int gpu) const {
  const auto s = static_cast<std::size_t>(segment);
  const auto known = [&] {
    const std::lock_guard lock(mutex_);
    return device_holds_[s];
  };
  if (auto hold = known()) return hold;
  const Share burst = share();
  // Wait only here: the event of the burst may be recorded again for other work.
  if (burst->is_on_device(segment)) wait_for_packets(*burst, segment);
  auto hold = std::make_shared<DeviceHold>(std::shared_ptr<const void>(this->hold()), gpu);
  const std::lock_guard lock(mutex_);
  if (base_ && device_holds_[s] == nullptr) device_holds_[s] = hold;
  return base_ ? device_holds_[s] : hold;
}

bool ReceivedBurst::released() const noexcept {
  const std::lock_guard lock(mutex_);
  return !base_;
}

void ReceivedBurst::release() noexcept {
  std::array<std::shared_ptr<DeviceHold>, MAX_NUM_SEGS> device_holds;
  py::object base;
  py::object lengths;
  const std::lock_guard lock(mutex_);
  // Destroyed outside the lock: the last reference runs the destructor of the capsule.
  std::swap(device_holds, device_holds_);
  std::swap(base, base_);
  std::swap(lengths, lengths_);
}

py::object ReceivedBurst::view(py::ssize_t index, int segment) const {
  const Share burst = share();
  check_segment(*burst, segment);
  const auto n = static_cast<py::ssize_t>(burst->num_packets());
  const py::ssize_t i = index < 0 ? index + n : index;
  if (i < 0 || i >= n) {
    throw py::index_error("packet " + std::to_string(index) + " of a burst of " +
                          std::to_string(n));
  }
  return packet(*this, burst, static_cast<std::size_t>(i), segment);
}

py::list ReceivedBurst::views(const py::slice& slice, int segment) const {
  const Share burst = share();
  check_segment(*burst, segment);
  py::ssize_t start = 0;
  py::ssize_t stop = 0;
  py::ssize_t step = 0;
  py::ssize_t count = 0;
  if (!slice.compute(static_cast<py::ssize_t>(burst->num_packets()), &start, &stop, &step,
                     &count)) {
    throw py::error_already_set();
  }
  py::list list(static_cast<std::size_t>(count));
  for (py::ssize_t k = 0; k < count; ++k) {
    list[static_cast<std::size_t>(k)] =
        packet(*this, burst, static_cast<std::size_t>(start + k * step), segment);
  }
  return list;
}

py::array ReceivedBurst::segment_lengths(int segment) const {
  const Share burst = share();
  check_segment(*burst, segment);
  return read_only_view(burst->pkt_lens[static_cast<std::size_t>(segment)], burst->num_packets(),
                        burst.base());
}

py::array ReceivedBurst::addresses(int segment) const {
  const Share burst = share();
  check_segment(*burst, segment);
  py::object base = py::reinterpret_borrow<py::object>(burst.base());
  // Kernels that receive the addresses run longer than this call.
  if (burst->is_on_device(segment)) base = base_for_kernels(*this, segment);
  return read_only_view(
      reinterpret_cast<const std::uintptr_t*>(burst->pkts[static_cast<std::size_t>(segment)]),
      burst->num_packets(), base);
}

py::array ReceivedBurst::lengths() {
  const Share burst = share();
  if (burst->hdr.hdr.num_segs == 1) return segment_lengths(0);
  py::object known;
  {
    const std::lock_guard lock(mutex_);
    known = lengths_;
  }
  if (!known) {
    std::vector<std::uint32_t> sums(burst->num_packets());
    for (std::uint32_t i = 0; i < burst->num_packets(); ++i) sums[i] = burst->packet_length(i);
    known = take_vector<std::uint32_t>(std::move(sums));
    py::object replaced = known;
    const std::lock_guard lock(mutex_);
    if (base_) std::swap(replaced, lengths_);
  }
  return known;
}

py::array ReceivedBurst::flow_ids() const {
  const Share burst = share();
  return read_only_view(burst->flow_ids, burst->num_packets(), burst.base());
}

py::array ReceivedBurst::timestamps() const {
  const Share burst = share();
  return read_only_view(reinterpret_cast<const std::int64_t*>(burst->timestamps),
                        burst->num_packets(), burst.base());
}

py::object ReceivedBurst::gather(const py::object& out, std::optional<int> segment) const {
  const Share burst = share();
  if (segment) check_segment(*burst, *segment);
  const Segments segments{segment.value_or(0),
                          segment ? *segment + 1 : std::min(burst->hdr.hdr.num_segs, MAX_NUM_SEGS)};
  for (int s = segments.first; s < segments.end; ++s) {
    if (!burst->is_on_device(s)) {
      if (!burst->host_readable(s)) require_host_readable(*burst, "gathered");
    } else if (segments.end - segments.first == 1) {
      return gather_on_device(*this, s, out);
    } else {
      throw Error(Status::NOT_SUPPORTED, "segment " + std::to_string(s) +
                                             " of the packets is in '" + burst->owners[s]->name() +
                                             "' on a GPU, and other segments may not be; "
                                             "gather one at a time (segment)");
    }
  }
  std::size_t longest = 0;
  for (std::uint32_t i = 0; i < burst->num_packets(); ++i)
    longest = std::max<std::size_t>(longest, segments.length(*burst, i));
  auto rows = gather_target(out, {burst->num_packets(), longest});
  std::uint8_t* row = rows.mutable_data();
  const auto width = static_cast<std::size_t>(rows.shape(1));
  const GilRelease unlocked;
  for (std::uint32_t i = 0; i < burst->num_packets(); ++i, row += width) {
    const std::uint8_t* end = append(row, *burst, i, segments);
    const auto used = static_cast<std::size_t>(end - row);
    if (used < width) std::memset(row + used, 0, width - used);
  }
  return rows;
}

py::tuple ReceivedBurst::gather_flat(const py::object& out) const {
  const Share burst = share();
  for (int s = 0; s < burst->hdr.hdr.num_segs; ++s) {
    if (!burst->is_on_device(s)) continue;
    throw Error(Status::NOT_SUPPORTED, "segment " + std::to_string(s) + " of the packets is in '" +
                                           burst->owners[s]->name() +
                                           "' on a GPU, and gather_flat is for the CPU; use "
                                           "gather(segment=" +
                                           std::to_string(s) + ").get() for its packets in rows");
  }
  require_host_readable(*burst, "gathered");
  std::size_t total = 0;
  for (std::uint32_t i = 0; i < burst->num_packets(); ++i) total += burst->packet_length(i);
  auto data = gather_target(out, {total});
  py::array_t<std::int64_t> offsets(static_cast<py::ssize_t>(burst->num_packets()) + 1);
  {
    std::uint8_t* const begin = data.mutable_data();
    std::int64_t* at = offsets.mutable_data();
    const GilRelease unlocked;
    std::uint8_t* to = begin;
    for (std::uint32_t i = 0; i < burst->num_packets(); ++i) {
      *at++ = to - begin;
      to = append(to, *burst, i, {0, burst->hdr.hdr.num_segs});
    }
    *at = to - begin;
  }
  return py::make_tuple(data[py::slice(0, static_cast<py::ssize_t>(total), 1)], offsets);
}

py::tuple ReceivedBurst::frame_info() const {
  const Share burst = share();
  const ReorderBurstInfo& info = burst->reorder;
  return py::make_tuple(info.batch_id, info.source_packet_count, burst->missing,
                        (info.burst_flags & DAQIRI_BURST_FLAG_REORDER_TIMEOUT) != 0,
                        burst->timestamps[0], burst->last_time);
}

py::tuple ReceivedBurst::valid() const {
  const Share burst = share();
  const std::uint32_t bytes = (burst->units + 7) / 8;
  const auto* const bits = reinterpret_cast<const std::uint8_t*>(burst->valid);
  return py::make_tuple(py::array_t<std::uint8_t>(bytes, bits), burst->units);
}

py::array_t<std::uint64_t> ReceivedBurst::columns() const {
  const Share burst = share();
  const ReorderBurstInfo& info = burst->reorder;
  return py::array_t<std::uint64_t>(info.num_column_values, info.columns);
}

void ReceivedBurst::write_pcap(const std::string& directory, const std::string& prefix,
                               bool nanosecond) const {
  const Share burst = share();
  const GilRelease unlocked;
  daqiri::write_pcap(*burst_, directory, prefix, nanosecond);
}

void ReceivedBurst::write_raw(const std::string& directory, const std::string& prefix,
                              std::uint64_t offset) const {
  const Share burst = share();
  const GilRelease unlocked;
  daqiri::write_raw(*burst, directory, prefix, offset);
}

void bind_burst(py::module_& m) {
  py::class_<ReceivedBurst>(m, "Burst", "A received burst; wrapped by daqiri_ophyd.engine.Burst.")
      .def("__len__", &ReceivedBurst::size)
      .def_property_readonly("released", &ReceivedBurst::released)
      .def("release", &ReceivedBurst::release)
      .def("view", &ReceivedBurst::view, py::arg("index"), py::arg("segment") = 0)
      .def("views", &ReceivedBurst::views, py::arg("slice"), py::arg("segment") = 0)
      .def(
          "device_array",
          [](const ReceivedBurst& burst, DeviceArray::Shape shape, py::dtype dtype) {
            return DeviceArray(burst, std::move(shape), std::move(dtype));
          },
          py::arg("shape"), py::arg("dtype"))
      .def("lengths", &ReceivedBurst::lengths)
      .def("segment_lengths", &ReceivedBurst::segment_lengths, py::arg("segment"))
      .def("addresses", &ReceivedBurst::addresses, py::arg("segment"))
      .def("flow_ids", &ReceivedBurst::flow_ids)
      .def("timestamps", &ReceivedBurst::timestamps)
      .def("gather", &ReceivedBurst::gather, py::arg("out"), py::arg("segment"))
      .def("gather_flat", &ReceivedBurst::gather_flat, py::arg("out"))
      .def("frame_info", &ReceivedBurst::frame_info)
      .def("columns", &ReceivedBurst::columns)
      .def("valid", &ReceivedBurst::valid)
      .def("write_pcap", &ReceivedBurst::write_pcap, py::arg("directory"), py::arg("prefix"),
           py::arg("nanosecond"))
      .def("write_raw", &ReceivedBurst::write_raw, py::arg("directory"), py::arg("prefix"),
           py::arg("offset"))
      .def_property_readonly(
          "host_readable",
          [](const ReceivedBurst& b) { return b.share()->unreadable_segment() < 0; })
      .def_property_readonly("nbytes",
                             [](const ReceivedBurst& b) { return b.share()->hdr.hdr.nbytes; })
      .def_property_readonly("port_id",
                             [](const ReceivedBurst& b) { return b.share()->hdr.hdr.port_id; })
      .def_property_readonly("queue_id",
                             [](const ReceivedBurst& b) { return b.share()->hdr.hdr.q_id; })
      .def_property_readonly("connection_id",
                             [](const ReceivedBurst& b) { return b.share()->connection_id; })
      .def_property_readonly("num_segments",
                             [](const ReceivedBurst& b) { return b.share()->hdr.hdr.num_segs; });
}

}  // namespace daqiri::python
