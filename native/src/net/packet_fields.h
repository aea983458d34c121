/// Header fields of captured packets.
#pragma once

#include <array>
#include <cstdint>

namespace daqiri {

/// What the headers of one packet say, in host byte order; 0 where a header is not there, or was
/// not captured whole.
struct PacketFields {
  /// Addresses as 48-bit numbers.
  std::uint64_t eth_src{0};
  std::uint64_t eth_dst{0};
  /// Behind VLAN tags; for link types without one: that of the IP version.
  std::uint16_t eth_type{0};
  /// VLAN id of the outermost tag.
  std::uint16_t vlan{0};
  std::uint8_t ip_version{0};
  /// Behind IPv6 extension headers.
  std::uint8_t ip_protocol{0};
  /// Time to live, hop limit.
  std::uint8_t ip_ttl{0};
  /// With the IP header.
  std::uint32_t ip_length{0};
  std::uint32_t ipv4_src{0};
  std::uint32_t ipv4_dst{0};
  std::array<std::uint8_t, 16> ipv6_src{};
  std::array<std::uint8_t, 16> ipv6_dst{};
  /// 17 (UDP) or 6 (TCP) where the fields below are set; not in later fragments.
  std::uint8_t transport{0};
  std::uint16_t src_port{0};
  std::uint16_t dst_port{0};
  /// With the UDP header; a datagram that is complete has 8 bytes of payload less. 0 in fragments.
  std::uint16_t udp_length{0};
  std::uint32_t tcp_seq{0};
  std::uint16_t tcp_flags{0};
  /// Captured bytes behind the last header that was understood, from the packet's beginning.
  std::uint32_t payload_at{0};
  std::uint32_t payload_length{0};
};

/// Whether parse_packet knows where the headers of a pcap link type are.
[[nodiscard]] bool has_fields(std::uint32_t link_type) noexcept;

/// Formats: IEEE 802.3 and 802.1Q, RFC 791, RFC 8200, RFC 768, RFC 9293, and the link types at
/// https://www.tcpdump.org/linktypes.html. No byte behind `captured` is read.
PacketFields parse_packet(const std::uint8_t* packet, std::uint32_t captured,
                          std::uint32_t link_type) noexcept;

}  // namespace daqiri
