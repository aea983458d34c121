/// Packets given by Python, copied into bursts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "arrays.h"
#include "gil.h"
#include "io/tx_queue.h"

namespace daqiri::python {

/// The packets to send and their launch times. Keeps references to the data.
class PacketSource {
 public:
  /// Rows of a 2-D uint8 array, shortened to `lengths`, or parts of a 1-D array at `offsets`. The
  /// other arrays are int64 and contiguous (None: not given). Throws Error INVALID_PARAMETER.
  PacketSource(const py::array& data, const py::object& offsets, const py::object& lengths,
               const py::object& launch_times);
  /// Bytes-like objects.
  PacketSource(const py::sequence& packets, const py::object& launch_times);
  PacketSource(const PacketSource&) = delete;
  PacketSource& operator=(const PacketSource&) = delete;
  ~PacketSource();

  struct Packet {
    const std::uint8_t* data;
    std::size_t length;
    /// ns on the clock of the port; 0 sends immediately.
    std::uint64_t launch;
  };
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] Packet operator[](std::size_t i) const noexcept;
  /// Throws Error INVALID_PARAMETER with the first packet that lies outside the data, is longer
  /// than `longest`, or has a negative launch time.
  void check(std::size_t longest, const std::string& queue) const;

 private:
  /// The values of an int64 array of `size_` entries, or null.
  const std::int64_t* column(const char* name, const py::object& array);

  std::vector<py::object> held_;
  std::vector<Py_buffer> buffers_;
  std::size_t size_{0};
  const std::uint8_t* base_{nullptr};
  /// Row i begins at base_ + i * stride_, or packet i at base_ + offsets_[i].
  std::ptrdiff_t stride_{0};
  std::size_t width_{0};
  const std::int64_t* offsets_{nullptr};
  const std::int64_t* lengths_{nullptr};
  const std::int64_t* launch_times_{nullptr};
};

/// Copies packets into bursts of a queue, some per step.
class Sender {
 public:
  /// Throws Error INVALID_PARAMETER for packets that cannot be sent or are longer than `longest`.
  Sender(TxQueue& queue, const PacketSource& packets, std::size_t longest,
         std::uintptr_t connection);
  [[nodiscard]] std::size_t submitted() const noexcept { return submitted_; }

  /// Sends for a while. Returns nothing if it should be called again; SUCCESS when all packets are
  /// submitted or the time `end` has passed; NO_FREE_BURST_BUFFERS, NO_FREE_PACKET_BUFFERS or
  /// NO_SPACE_AVAILABLE when nothing became free before `deadline`, which restarts with each burst;
  /// or the error of the queue. Call without the interpreter lock.
  std::optional<Status> step(Deadline& deadline, const Deadline& end);
  /// The error message of the queue; empty without an error.
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }

 private:
  void fill(Burst& burst) const noexcept;
  Status refuse(Status status, const std::string& what, const char* why = nullptr);

  TxQueue& queue_;
  const PacketSource& packets_;
  std::uintptr_t connection_;
  std::uint32_t chunk_;
  std::size_t submitted_{0};
  std::string reason_;
};

}  // namespace daqiri::python
