/// A received burst in Python's hands.
#pragma once

#include <memory>
#include <string>

#include "arrays.h"
#include "burst/burst.h"

namespace daqiri::python {

/// Gives the burst back when the last view of its packets is gone. Any thread, with or without the
/// lock.
class BurstOwner {
 public:
  explicit BurstOwner(Burst* burst) noexcept : burst_(burst) {}
  BurstOwner(const BurstOwner&) = delete;
  BurstOwner& operator=(const BurstOwner&) = delete;
  ~BurstOwner() { burst_->release(); }
  [[nodiscard]] const Burst& operator*() const noexcept { return *burst_; }

 private:
  Burst* burst_;
};

class ReceivedBurst {
 public:
  /// Takes `burst` over.
  explicit ReceivedBurst(Burst* burst);

  [[nodiscard]] std::size_t size() const { return get().num_packets(); }
  [[nodiscard]] bool released() const noexcept { return owner_ == nullptr; }
  /// Let go. Views that exist keep the buffers.
  void release() noexcept;

  /// Part of packet `index` (negative: from the end) that lies in `segment`. Throws IndexError.
  [[nodiscard]] py::array view(py::ssize_t index, int segment);
  [[nodiscard]] py::list views(const py::slice& slice, int segment);

  [[nodiscard]] py::array lengths();
  [[nodiscard]] py::array segment_lengths(int segment);
  [[nodiscard]] py::array flow_ids();
  [[nodiscard]] py::array timestamps();
  [[nodiscard]] py::array gather(const py::object& out) const;
  [[nodiscard]] py::tuple gather_flat(const py::object& out) const;
  void write_pcap(const std::string& directory, const std::string& prefix, bool nanosecond) const;
  void write_raw(const std::string& directory, const std::string& prefix,
                 std::uint64_t offset) const;

  /// Throws Error INVALID_PARAMETER after release.
  [[nodiscard]] const Burst& get() const { return **owner(); }

 private:
  [[nodiscard]] const std::shared_ptr<BurstOwner>& owner() const;
  /// What views have as their base: one per burst, made when first needed.
  [[nodiscard]] py::handle base();
  [[nodiscard]] py::array packet(const Burst& burst, std::size_t index, int segment);
  [[nodiscard]] PacketTable table() const;

  std::shared_ptr<BurstOwner> owner_;
  py::object base_;
  py::object lengths_;
};

}  // namespace daqiri::python
