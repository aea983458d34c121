/// The hash that distributes packets to queues.
#pragma once

#include <cstdint>

namespace daqiri::steering {

/// Toeplitz hash of an IPv4/UDP tuple with the key published by Microsoft, in the order source
/// address, destination address, source port, destination port. With ports 0, the hash of the
/// addresses only. Not symmetric: the two directions of a connection have different hashes.
///
/// https://learn.microsoft.com/windows-hardware/drivers/network/verifying-the-rss-hash-calculation
std::uint32_t toeplitz(std::uint32_t ipv4_src, std::uint32_t ipv4_dst, std::uint16_t udp_src,
                       std::uint16_t udp_dst) noexcept;

}  // namespace daqiri::steering
