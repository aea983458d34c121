#include "queues.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "bindings.h"
#include "burst.h"
#include "daqiri/error.h"
#include "gil.h"
#include "packet_source.h"
#include "recorder.h"
#include "session/rates.h"

namespace daqiri::python {

namespace {

py::dict dropped_by_name(const DropCounts& dropped) {
  py::dict by_name;
  for (std::size_t r = 0; r < NUM_DROP_REASONS; ++r) {
    by_name[py::str(std::string(drop_reason_name(static_cast<DropReason>(r))))] = dropped[r];
  }
  return by_name;
}

template <typename Group>
py::dict by_name(const Group& group) {
  py::dict values;
  for (const Counter& counter : counters_of(group)) values[counter.name] = counter.value;
  values["dropped"] = dropped_by_name(group.dropped);
  return values;
}

Burst* receive_now(RxQueue& queue, std::uintptr_t connection) {
  // Packets that are copied to a GPU may require a wait.
  std::optional<GilRelease> unlocked;
  if (queue.on_gpu()) unlocked.emplace();
  return queue.receive_unrecorded(connection);
}

}  // namespace

py::object ReceiveQueue::receive(std::uintptr_t connection, std::optional<double> timeout) {
  RxQueue& queue = get();
  const Deadline deadline(timeout);
  for (;;) {
    // Check `closed` first, so that bursts queued before the queue closed are returned.
    const bool closed = queue.closed();
    if (Burst* burst = receive_now(queue, connection))
      return py::cast(std::make_unique<ReceivedBurst>(burst));
    if (closed) {
      throw Error(Status::NOT_READY, "receive queue '" + queue.config().common_.name_ +
                                         "' is closed and empty; open the engine again");
    }
    if (deadline.passed()) return py::none();
    {
      const GilRelease unlocked;
      queue.wait(deadline.slice(), connection);
    }
    check_signals();
  }
}

py::object ReceiveQueue::receive_from(std::uintptr_t connection, std::optional<double> timeout) {
  // Throws if the connection does not exist.
  static_cast<void>(open_->session().connections().queue_of(connection));
  return receive(connection, timeout);
}

py::dict ReceiveQueue::counters() const { return by_name(get().counters()); }

py::tuple ReceiveQueue::rates() const {
  const Rates rates = rates_of(open_->session(), *queue_);
  return py::make_tuple(rates.packets, rates.bytes);
}

void ReceiveQueue::flush() {
  RxQueue& queue = get();
  const GilRelease unlocked;
  queue.request_flush();
}

std::shared_ptr<Recorder> ReceiveQueue::record(const RecorderOptions& options) {
  RxQueue& queue = get();
  const GilRelease unlocked;
  return open_->record(queue, options);
}

namespace {

py::tuple send(TxQueue& queue, const PacketSource& packets, std::size_t longest,
               std::uintptr_t connection, std::optional<double> timeout,
               std::optional<double> within) {
  Deadline deadline(timeout);
  const Deadline end(within);
  Sender sender(queue, packets, longest, connection);
  for (;;) {
    std::optional<Status> status;
    {
      const GilRelease unlocked;
      status = sender.step(deadline, end);
    }
    if (status)
      return py::make_tuple(sender.submitted(), static_cast<int>(*status), sender.reason());
    check_signals();
  }
}

}  // namespace

py::tuple TransmitQueue::send_array(const py::array& data, const py::object& offsets,
                                    const py::object& lengths, const py::object& launch_times,
                                    std::uintptr_t connection, std::optional<double> timeout,
                                    std::optional<double> within) {
  return send(get(), PacketSource(data, offsets, lengths, launch_times), max_packet_size(),
              connection, timeout, within);
}

py::tuple TransmitQueue::send_list(const py::sequence& packets, const py::object& launch_times,
                                   std::uintptr_t connection, std::optional<double> timeout,
                                   std::optional<double> within) {
  return send(get(), PacketSource(packets, launch_times), max_packet_size(), connection, timeout,
              within);
}

std::uint32_t TransmitQueue::max_packet_size() const {
  const TxQueue& queue = get();
  const SocketConfig& socket = open_->session().port(queue.port_id()).config.socket_;
  return socket.max_payload_size_ == 0
             ? queue.max_packet_size()
             : std::min(queue.max_packet_size(), socket.max_payload_size_);
}

bool TransmitQueue::wait_sent(std::optional<double> timeout) {
  TxQueue& queue = get();
  const Deadline deadline(timeout);
  for (;;) {
    bool idle = false;
    bool closed = false;
    {
      const GilRelease unlocked;
      closed = queue.closed();
      idle = queue.wait_idle(closed ? 0 : deadline.slice());
    }
    check_signals();
    if (idle) return true;
    if (closed || deadline.passed()) return false;
  }
}

std::uint64_t TransmitQueue::flush() {
  TxQueue& queue = get();
  const GilRelease unlocked;
  return queue.flush();
}

py::dict TransmitQueue::counters() const { return by_name(get().counters()); }

py::tuple TransmitQueue::rates() const {
  const Rates rates = rates_of(open_->session(), *queue_);
  return py::make_tuple(rates.packets, rates.bytes);
}

py::tuple TransmitQueue::lateness() const {
  const Histogram& histogram = get().lateness();
  std::vector<std::uint64_t> counts;
  std::vector<std::uint64_t> edges{0};
  for (std::uint32_t i = 0; i < Histogram::NUM_BUCKETS; ++i) {
    const std::uint64_t count = histogram.bucket_count(i);
    if (count == 0) continue;
    // Fill empty buckets in between, but not after the last one.
    for (auto k = static_cast<std::uint32_t>(counts.size()); k <= i; ++k) {
      counts.push_back(0);
      edges.push_back(Histogram::upper_edge(k) + 1);
    }
    counts.back() = count;
  }
  return py::make_tuple(histogram.maximum(), take_vector<std::int64_t>(std::move(edges)),
                        take_vector<std::int64_t>(std::move(counts)));
}

void bind_queues(py::module_& m) {
  py::class_<ReceiveQueue>(m, "RxQueue", "A receive queue; wrapped by daqiri_ophyd.engine.RxQueue.")
      .def(
          "receive",
          [](ReceiveQueue& queue, std::optional<double> timeout) {
            return queue.receive(0, timeout);
          },
          py::arg("timeout"))
      .def("receive_from", &ReceiveQueue::receive_from, py::arg("connection_id"),
           py::arg("timeout"))
      .def("counters", &ReceiveQueue::counters)
      .def("rates", &ReceiveQueue::rates)
      .def("flush", &ReceiveQueue::flush)
      .def(
          "record",
          [](ReceiveQueue& queue, std::string directory, std::string prefix,
             std::uint64_t first_number, const std::string& format, bool nanosecond,
             std::uint64_t packet_data_offset, const std::string& writer,
             const std::string& on_error_word, bool durable, std::uint64_t roll_packets,
             std::uint64_t roll_bytes, double roll_seconds, std::uint64_t max_packets,
             double max_seconds, std::optional<FlowId> start_flow,
             std::shared_ptr<RecorderGroup> group, RunMetadata metadata) {
            return RecorderHandle(queue.record({.directory = std::move(directory),
                                                .prefix = std::move(prefix),
                                                .first_number = first_number,
                                                .format = capture_format(format),
                                                .nanosecond = nanosecond,
                                                .packet_data_offset = packet_data_offset,
                                                .writer = writer_kind(writer),
                                                .on_error = on_error(on_error_word),
                                                .durable = durable,
                                                .roll_packets = roll_packets,
                                                .roll_bytes = roll_bytes,
                                                .roll_seconds = roll_seconds,
                                                .max_packets = max_packets,
                                                .max_seconds = max_seconds,
                                                .start_flow = start_flow,
                                                .metadata = std::move(metadata),
                                                .group = std::move(group)}));
          },
          py::arg("directory"), py::arg("prefix"), py::kw_only(), py::arg("first_number"),
          py::arg("format"), py::arg("nanosecond"), py::arg("packet_data_offset"),
          py::arg("writer"), py::arg("on_error"), py::arg("durable"), py::arg("roll_packets"),
          py::arg("roll_bytes"), py::arg("roll_seconds"), py::arg("max_packets"),
          py::arg("max_seconds"), py::arg("start_flow"), py::arg("group"), py::arg("metadata"))
      .def_property_readonly("closed", &ReceiveQueue::closed)
      .def_property_readonly("ring_capacity",
                             [](const ReceiveQueue& q) { return q.get().ring_capacity(); })
      .def_property_readonly("max_packet_size",
                             [](const ReceiveQueue& q) { return q.get().max_packet_size(); });

  py::class_<TransmitQueue>(m, "TxQueue",
                            "A transmit queue; wrapped by daqiri_ophyd.engine.TxQueue.")
      .def("send_array", &TransmitQueue::send_array, py::arg("data"), py::kw_only(),
           py::arg("offsets"), py::arg("lengths"), py::arg("launch_times"),
           py::arg("connection_id"), py::arg("timeout"), py::arg("within"))
      .def("send_list", &TransmitQueue::send_list, py::arg("packets"), py::kw_only(),
           py::arg("launch_times"), py::arg("connection_id"), py::arg("timeout"), py::arg("within"))
      .def("wait_sent", &TransmitQueue::wait_sent, py::arg("timeout"))
      .def("flush", &TransmitQueue::flush)
      .def("counters", &TransmitQueue::counters)
      .def("rates", &TransmitQueue::rates)
      .def("lateness", &TransmitQueue::lateness)
      .def("reset_lateness", [](TransmitQueue& q) { q.get().reset_lateness(); })
      .def_property_readonly("max_packet_size", &TransmitQueue::max_packet_size)
      .def_property_readonly("held_up_by",
                             [](const TransmitQueue& q) { return q.get().held_up_by(); })
      .def_property_readonly("closed", [](const TransmitQueue& q) { return q.get().closed(); });
}

}  // namespace daqiri::python
