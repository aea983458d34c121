/// The hash that distributes packets to queues.
#pragma once

#include <array>
#include <cstdint>

namespace daqiri::steering {

/// The key published by Microsoft, as network cards take it.
inline constexpr std::array<std::uint8_t, 40> RSS_KEY = {
    0x6D, 0x5A, 0x56, 0xDA, 0x25, 0x5B, 0x0E, 0xC2, 0x41, 0x67, 0x25, 0x3D, 0x43, 0xA3,
    0x8F, 0xB0, 0xD0, 0xCA, 0x2B, 0xCB, 0xAE, 0x7B, 0x30, 0xB4, 0x77, 0xCB, 0x2D, 0xA3,
    0x80, 0x30, 0xF2, 0x0C, 0x6A, 0x42, 0xB7, 0x3B, 0xBE, 0xAC, 0x01, 0xFA};
/// Entries of the table from hashes to queues: the most of ConnectX cards, so that a card which
/// distributes chooses the same queues.
inline constexpr std::uint32_t RSS_ENTRIES = 512;

/// Which of a flow's queues receives packets with this hash: the queues fill the table in turn.
constexpr std::uint32_t rss_queue(std::uint32_t hash, std::uint32_t num_queues) noexcept {
  return hash % RSS_ENTRIES % num_queues;
}

/// Toeplitz hash of an IPv4/UDP tuple with RSS_KEY, in the order source
/// address, destination address, source port, destination port. With ports 0, the hash of the
/// addresses only. Not symmetric: the two directions of a connection have different hashes.
///
/// https://learn.microsoft.com/windows-hardware/drivers/network/verifying-the-rss-hash-calculation
std::uint32_t toeplitz(std::uint32_t ipv4_src, std::uint32_t ipv4_dst, std::uint16_t udp_src,
                       std::uint16_t udp_dst) noexcept;

}  // namespace daqiri::steering
