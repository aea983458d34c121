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

  /// The next burst (of a connection other than 0: its next), or None after `timeout` seconds
  /// (None: no limit). Throws Error NOT_READY when the queue is closed and empty, or being
  /// recorded.
  [[nodiscard]] py::object receive(std::uintptr_t connection, std::optional<double> timeout);
  /// As above, of a connection that there is.
  [[nodiscard]] py::object receive_from(std::uintptr_t connection, std::optional<double> timeout);
  [[nodiscard]] py::dict counters() const;
  void flush();
  [[nodiscard]] std::shared_ptr<Recorder> record(const RecorderOptions& options);

  /// Nothing more will come than what the queue holds.
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

  /// Packets are the rows of a 2-D uint8 array, cut to `lengths`, or parts of a 1-D array at
  /// `offsets`. Returns how many were submitted, SUCCESS (all, or what there was room
  /// for `within` so many seconds) or what stopped the rest, and why the
  /// queue refused, if it did.
  [[nodiscard]] py::tuple send_array(const py::array& data, const py::object& offsets,
                                     const py::object& lengths, const py::object& launch_times,
                                     std::uintptr_t connection, std::optional<double> timeout,
                                     std::optional<double> within);
  /// Packets are the bytes-like objects of a sequence.
  [[nodiscard]] py::tuple send_list(const py::sequence& packets, const py::object& launch_times,
                                    std::uintptr_t connection, std::optional<double> timeout,
                                    std::optional<double> within);
  [[nodiscard]] bool wait_sent(std::optional<double> timeout);
  /// Packets dropped.
  std::uint64_t flush();
  [[nodiscard]] py::dict counters() const;
  [[nodiscard]] py::tuple lateness() const;
  /// What fits the buffers and, of a socket, a datagram as configured.
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
