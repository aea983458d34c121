/// A received burst in Python's hands.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "arrays.h"
#include "burst/burst.h"

namespace daqiri::python {

class DeviceHold;

/// Any thread may call anything at any time, with or without a global interpreter lock: each call
/// begins by taking a share in the burst, which outlasts a release() by another thread.
class ReceivedBurst {
 public:
  /// Takes `burst` over.
  explicit ReceivedBurst(Burst* burst);
  ReceivedBurst(const ReceivedBurst&) = delete;
  ReceivedBurst& operator=(const ReceivedBurst&) = delete;
  ~ReceivedBurst();

  [[nodiscard]] std::size_t size() const { return share()->num_packets(); }
  [[nodiscard]] bool released() const noexcept;
  /// Let go. Views that exist keep the buffers.
  void release() noexcept;

  /// Part of packet `index` (negative: from the end) that lies in `segment`. Throws IndexError.
  /// On a GPU: DeviceArray.
  [[nodiscard]] py::object view(py::ssize_t index, int segment) const;
  [[nodiscard]] py::list views(const py::slice& slice, int segment) const;

  [[nodiscard]] py::array lengths();
  [[nodiscard]] py::array segment_lengths(int segment) const;
  [[nodiscard]] py::array addresses(int segment) const;
  [[nodiscard]] py::array flow_ids() const;
  [[nodiscard]] py::array timestamps() const;
  /// `segment`: only of this one. On a GPU: DeviceArray, or `out`.
  [[nodiscard]] py::object gather(const py::object& out, std::optional<int> segment) const;
  [[nodiscard]] py::tuple gather_flat(const py::object& out) const;
  /// (batch, packets, missing, timed out, first timestamp, last timestamp) of a frame.
  [[nodiscard]] py::tuple frame_info() const;
  /// Of each unit of a frame, whether it has come, shape (units,).
  [[nodiscard]] py::array valid() const;
  void write_pcap(const std::string& directory, const std::string& prefix, bool nanosecond) const;
  void write_raw(const std::string& directory, const std::string& prefix,
                 std::uint64_t offset) const;

  /// The burst, for as long as this is held.
  class Share {
   public:
    Share(py::object base, const Burst& burst) : base_(std::move(base)), burst_(burst) {}
    [[nodiscard]] const Burst& operator*() const noexcept { return burst_; }
    [[nodiscard]] const Burst* operator->() const noexcept { return &burst_; }
    /// What arrays over the burst's memory have as their base.
    [[nodiscard]] py::handle base() const noexcept { return base_; }

   private:
    py::object base_;
    const Burst& burst_;
  };
  /// Throws Error INVALID_PARAMETER after release.
  [[nodiscard]] Share share() const;
  /// A share that needs no interpreter. Throws as share().
  [[nodiscard]] std::unique_ptr<BurstHold> hold() const;
  /// What keeps the packets of a segment, which are on that GPU by now, for all arrays of them.
  /// Throws as share(), and GENERIC_FAILURE.
  [[nodiscard]] std::shared_ptr<DeviceHold> device_hold(int segment, int gpu) const;

 private:
  Burst* burst_;
  /// Guards what follows. Nothing that could run Python is done while it is held: without a global
  /// lock, a thread that waits here cannot be stopped for a garbage collection.
  mutable std::mutex mutex_;
  /// Gives the burst back with its last reference; empty after release.
  py::object base_;
  /// Of segments that arrays on a GPU were made of.
  mutable std::array<std::shared_ptr<DeviceHold>, MAX_NUM_SEGS> device_holds_;
  /// Sums over segments, made when first asked for.
  py::object lengths_;
};

}  // namespace daqiri::python
