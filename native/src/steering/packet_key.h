/// The fields of a packet that rules match.
#pragma once

#include <cstdint>
#include <span>

#include "net/transforms.h"

namespace daqiri::steering {

/// Numbers are in host byte order.
struct PacketKey {
  bool ipv4_udp{false};
  /// UDP over IPv6: only rules that name no IPv4 field match.
  bool ipv6_udp{false};
  std::uint16_t udp_src{0};
  std::uint16_t udp_dst{0};
  std::uint16_t ipv4_len{0};
  std::uint32_t ipv4_src{0};
  std::uint32_t ipv4_dst{0};
  /// VLAN tags in front of the headers.
  std::uint8_t tags{0};
  /// eCPRI behind its EtherType; the id is that of messages that have one.
  bool ecpri{false};
  bool ecpri_has_id{false};
  std::uint8_t ecpri_type{0};
  std::uint32_t ecpri_id{0};
  /// From the first byte of the frame to the UDP payload, and to its end as far as it is here.
  std::uint32_t payload_at{0};
  std::uint32_t payload_end{0};
};

/// Bytes from the beginning of a frame on behind which rules see nothing: headers of a tunnel, then
/// Ethernet, VLAN tags, the longest IPv4 header, UDP, the last flex item.
inline constexpr std::uint32_t MOST_KEY_BYTES = MOST_TUNNEL_BYTES + 14 + 4 * 4 + 60 + 8 + 32;

/// Key of an Ethernet frame: of IPv4/UDP, other than later fragments, or eCPRI, behind VLAN tags;
/// anything else has none. `frame` may be the beginning of a frame only. No byte behind `length` is
/// read.
PacketKey parse_frame(const std::uint8_t* frame, std::uint32_t length) noexcept;
/// As above, of a packet within a frame: of what is behind an Ethernet header that ends at `at`
/// with `eth_type`. Places are those in the frame.
PacketKey parse_frame(const std::uint8_t* frame, std::uint32_t length, std::uint32_t at,
                      std::uint16_t eth_type) noexcept;

/// What rules are matched against: the key, and the packet's bytes where they are known.
struct PacketView {
  PacketKey key;
  /// From the first byte of the frame on, or of what a socket passes on; empty: not known.
  std::span<const std::uint8_t> bytes{};
  /// Of the whole frame, of which `bytes` may be the beginning.
  std::uint32_t length{0};

  static PacketView of_frame(const std::uint8_t* frame, std::uint32_t length) noexcept {
    return of_beginning(frame, length, length);
  }
  /// `captured`: bytes at `frame`; all headers are among them.
  static PacketView of_beginning(const std::uint8_t* frame, std::uint32_t captured,
                                 std::uint32_t length) noexcept {
    return {parse_frame(frame, captured), {frame, captured}, length};
  }
  /// `room`: for the beginnings of several pieces, put together.
  static PacketView of_pieces(const Pieces& packet,
                              std::span<std::uint8_t, MOST_KEY_BYTES> room) noexcept;
};

}  // namespace daqiri::steering
