/// The hash that spreads packets over queues.
#pragma once

#include <cstdint>

namespace daqiri::steering {

/// Toeplitz hash of an IPv4/UDP tuple with the key that Microsoft publishes for it, in the order
/// source address, destination address, source port, destination port. Ports 0: that of the
/// addresses alone. Not symmetric: the two directions of a conversation have a hash each.
///
/// https://learn.microsoft.com/windows-hardware/drivers/network/verifying-the-rss-hash-calculation
std::uint32_t toeplitz(std::uint32_t ipv4_src, std::uint32_t ipv4_dst, std::uint16_t udp_src,
                       std::uint16_t udp_dst) noexcept;

}  // namespace daqiri::steering
