/// DPDK's environment abstraction layer (EAL): the part of DPDK that belongs to the process.
#pragma once

#include <cstdint>
#include <string>

#include "daqiri/config.h"

namespace daqiri::dpdk {

/// Start the EAL, unless it has been started: DPDK can be started once in a process, so it is never
/// stopped. Any thread. Throws Error: once it has failed, the same error every time; in a child
/// made by fork(2), NOT_SUPPORTED.
void start_eal();

/// Whether this process started the EAL. A child made by fork(2) must not touch what it has of it.
[[nodiscard]] bool owns_eal() noexcept;

/// While it exists, errors that DPDK reports in this thread are for an exception: the log has them
/// as details.
class Reports {
 public:
  Reports();
  Reports(const Reports&) = delete;
  Reports& operator=(const Reports&) = delete;
  ~Reports();

  /// Text of `error`, an errno of either sign, and what DPDK reported in this thread since the last
  /// call.
  [[nodiscard]] static std::string reason(int error);
};

/// A virtual device, which exists as long as this object.
class Device {
 public:
  /// `interface.address_`: the device, with its arguments. Throws Error.
  explicit Device(const InterfaceConfig& interface);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device();

  /// DPDK's number of the port.
  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  /// Whether each of its receive queues gets what the transmit queue of the same number sends.
  [[nodiscard]] bool loops() const noexcept { return name_.starts_with("net_ring"); }

 private:
  void remove() noexcept;

  std::string name_;
  std::uint16_t port_{0};
};

}  // namespace daqiri::dpdk
