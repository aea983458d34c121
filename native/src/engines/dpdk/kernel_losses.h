/// What the kernel loses on the way to a device of DPDK that is a network interface.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engines/dpdk/packet_sockets.h"
#include "metrics/counters.h"
#include "net/link_counters.h"
#include "net/link_statistics.h"

namespace daqiri::dpdk {

/// Their drivers count none of this. One thread at a time.
class KernelLosses {
 public:
  /// Begin to count, for a device that has started, in the network namespace of the calling thread.
  /// `port`: for the log. `interface`: of the kernel; 0: none. `sockets`: of the device.
  void begin(const std::string& port, std::string_view driver, unsigned interface,
             const PacketSockets& sockets);
  /// Since `begin`.
  [[nodiscard]] PortSnapshot read() noexcept;

 private:
  /// Of a net_af_packet: losses of its network interface, and its sockets.
  std::optional<LinkStatistics> link_;
  const PacketSockets* sockets_{nullptr};
  std::uint64_t dropped_by_sockets_{0};
  /// Of a net_tap.
  std::optional<LinkReader> reader_;
  int tap_{0};
  std::uint64_t dropped_before_{0};
};

}  // namespace daqiri::dpdk
