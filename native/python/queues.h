/// Receive and transmit queues of an open session.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "arrays.h"
#include "lifecycle.h"

namespace daqiri::python {

class ReceiveQueue {
 public:
  ReceiveQueue(std::shared_ptr<OpenSession> open, RxQueue& queue)
      : open_(std::move(open)), queue_(&queue) {}

  /// The next burst, or None after `timeout` seconds (None: no limit). With a connection other than
  /// 0, the next burst of that connection. Throws Error NOT_READY when the queue is closed and
  /// empty, or is being recorded.
  [[nodiscard]] py::object receive(std::uintptr_t connection, std::optional<double> timeout);
  /// As above, for a connection that must exist.
  [[nodiscard]] py::object receive_from(std::uintptr_t connection, std::optional<double> timeout);
  [[nodiscard]] py::dict counters() const;
  /// Packets and bytes per second.
  [[nodiscard]] py::tuple rates() const;
  void flush();
  [[nodiscard]] std::shared_ptr<Recorder> record(const RecorderOptions& options);

  /// True if no more packets will arrive; bursts may still be in the queue.
  [[nodiscard]] bool closed() const { return open_->closed() || queue_->closed(); }
  /// The queue, after a check that this process may use it.
  [[nodiscard]] RxQueue& get() const {
    static_cast<void>(open_->session());
    return *queue_;
  }

 private:
  std::shared_ptr<OpenSession> open_;
  RxQueue* queue_;
};

class TransmitQueue {
 public:
  TransmitQueue(std::shared_ptr<OpenSession> open, TxQueue& queue)
      : open_(std::move(open)), queue_(&queue) {}

  /// Packets are the rows of a 2-D uint8 array, shortened to `lengths`, or parts of a 1-D array at
  /// `offsets`. Returns the number of submitted packets, a status, and the error message of the
  /// queue, if any. The status is SUCCESS (all packets, or as many as could be sent `within` so
  /// many seconds) or the reason why sending stopped.
  [[nodiscard]] py::tuple send_array(const py::array& data, const py::object& offsets,
                                     const py::object& lengths, const py::object& launch_times,
                                     std::uintptr_t connection, std::optional<double> timeout,
                                     std::optional<double> within);
  /// Packets are the bytes-like objects of a sequence.
  [[nodiscard]] py::tuple send_list(const py::sequence& packets, const py::object& launch_times,
                                    std::uintptr_t connection, std::optional<double> timeout,
                                    std::optional<double> within);
  [[nodiscard]] bool wait_sent(std::optional<double> timeout);
  /// Returns the number of dropped packets.
  std::uint64_t flush();
  [[nodiscard]] py::dict counters() const;
  /// Packets and bytes per second.
  [[nodiscard]] py::tuple rates() const;
  [[nodiscard]] py::tuple lateness() const;
  /// Limited by the buffers and, for a socket, by the configured datagram size.
  [[nodiscard]] std::uint32_t max_packet_size() const;

  [[nodiscard]] TxQueue& get() const {
    static_cast<void>(open_->session());
    return *queue_;
  }

 private:
  std::shared_ptr<OpenSession> open_;
  TxQueue* queue_;
};

}  // namespace daqiri::python
