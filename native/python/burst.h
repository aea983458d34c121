/// A received burst, as Python sees it.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "arrays.h"
#include "burst/burst.h"

namespace daqiri::python {

class DeviceHold;

/// Any thread may call any method at any time, with or without a global interpreter lock: each call
/// first takes a share in the burst, which stays valid if another thread calls release().
class ReceivedBurst {
 public:
  /// Takes ownership of `burst`.
  explicit ReceivedBurst(Burst* burst);
  ReceivedBurst(const ReceivedBurst&) = delete;
  ReceivedBurst& operator=(const ReceivedBurst&) = delete;
  ~ReceivedBurst();

  [[nodiscard]] std::size_t size() const { return share()->num_packets(); }
  [[nodiscard]] bool released() const noexcept;
  /// Drops this reference. The buffers stay in use as long as views exist.
  void release() noexcept;

  /// The part of packet `index` (negative: from the end) in `segment`; a DeviceArray for packets on
  /// a GPU. Throws IndexError.
  [[nodiscard]] py::object view(py::ssize_t index, int segment) const;
  [[nodiscard]] py::list views(const py::slice& slice, int segment) const;

  [[nodiscard]] py::array lengths();
  [[nodiscard]] py::array segment_lengths(int segment) const;
  [[nodiscard]] py::array addresses(int segment) const;
  [[nodiscard]] py::array flow_ids() const;
  [[nodiscard]] py::array timestamps() const;
  /// With `segment`, only this segment. For packets on a GPU, returns a DeviceArray or `out`.
  [[nodiscard]] py::object gather(const py::object& out, std::optional<int> segment) const;
  [[nodiscard]] py::tuple gather_flat(const py::object& out) const;
  /// (batch, packets, missing, timed out, first timestamp, last timestamp) of a frame.
  [[nodiscard]] py::tuple frame_info() const;
  /// (bits, units) of a frame: bit i of byte i / 8 says whether unit i was received.
  [[nodiscard]] py::tuple valid() const;
  /// Numbers of a frame's columns.
  [[nodiscard]] py::array_t<std::uint64_t> columns() const;
  void write_pcap(const std::string& directory, const std::string& prefix, bool nanosecond) const;
  void write_raw(const std::string& directory, const std::string& prefix,
                 std::uint64_t offset) const;

  /// Keeps the burst valid while it exists.
  class Share {
   public:
    Share(py::object base, const Burst& burst) : base_(std::move(base)), burst_(burst) {}
    [[nodiscard]] const Burst& operator*() const noexcept { return burst_; }
    [[nodiscard]] const Burst* operator->() const noexcept { return &burst_; }
    /// The base object of arrays over the memory of the burst.
    [[nodiscard]] py::handle base() const noexcept { return base_; }

   private:
    py::object base_;
    const Burst& burst_;
  };
  /// Throws Error INVALID_PARAMETER after release().
  [[nodiscard]] Share share() const;
  /// A share that does not need the interpreter. Throws as share() does.
  [[nodiscard]] std::unique_ptr<BurstHold> hold() const;
  /// Shared by all arrays of a segment; waits until its packets are on that GPU. Throws as share()
  /// does, and GENERIC_FAILURE.
  [[nodiscard]] std::shared_ptr<DeviceHold> device_hold(int segment, int gpu) const;

 private:
  Burst* burst_;
  /// Guards the members below. Do not run Python code while holding it: without a global
  /// interpreter lock, a thread that waits here cannot be stopped for a garbage collection.
  mutable std::mutex mutex_;
  /// Its last reference returns the burst. Empty after release().
  py::object base_;
  /// For segments that were exported as arrays on a GPU.
  mutable std::array<std::shared_ptr<DeviceHold>, MAX_NUM_SEGS> device_holds_;
  /// Packet lengths summed over the segments, computed on first use.
  py::object lengths_;
};

}  // namespace daqiri::python
