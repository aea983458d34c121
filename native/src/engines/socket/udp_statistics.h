/// The kernel's counters of UDP datagrams that it has dropped.
#pragma once

#include <cstdint>
#include <string_view>

namespace daqiri::sockets {

/// Datagrams dropped by all sockets of a network namespace, since it exists. The kernel does not
/// count them by socket and reason.
struct UdpStatistics {
  /// Wrong checksum (InCsumErrors).
  std::uint64_t wrong_checksum{0};
  /// Full receive buffer (RcvbufErrors).
  std::uint64_t full_buffer{0};
};

/// From the text of /proc/net/snmp, or of /proc/net/snmp6. Zeros for what is not in it.
UdpStatistics parse_udp_statistics(std::string_view text, bool ipv6) noexcept;
/// Those of the calling thread's network namespace; zeros if they cannot be read. Does not
/// allocate.
UdpStatistics read_udp_statistics(bool ipv6) noexcept;

}  // namespace daqiri::sockets
