/// The fields of a packet that rules match.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "daqiri/flows.h"
#include "net/transforms.h"

namespace daqiri::steering {

/// eCPRI messages up to this type begin with an id: of 32 bits for this one, of 16 for the others.
inline constexpr std::uint8_t ECPRI_GENERIC_DATA = 3;

/// Numbers are in host byte order.
struct PacketKey {
  bool ipv4_udp{false};
  /// UDP over IPv6; the IPv4 fields are 0, which no rule requires.
  bool ipv6_udp{false};
  std::uint16_t udp_src{0};
  std::uint16_t udp_dst{0};
  std::uint16_t ipv4_len{0};
  std::uint32_t ipv4_src{0};
  std::uint32_t ipv4_dst{0};
  /// VLAN tags before the headers.
  VlanTags tags{};
  /// eCPRI after its EtherType; the id is set for messages that have one.
  bool ecpri{false};
  bool ecpri_has_id{false};
  std::uint8_t ecpri_type{0};
  std::uint32_t ecpri_id{0};
  /// Offset of the UDP payload in the frame, and the end of the available part.
  std::uint32_t payload_at{0};
  std::uint32_t payload_end{0};

  [[nodiscard]] bool udp() const noexcept { return ipv4_udp || ipv6_udp; }
};

/// Longest IP header before UDP: IPv6 with 88 bytes of extension headers; IPv4 is shorter.
inline constexpr std::uint32_t MOST_IP_BYTES = 128;
/// Longest part of a UDP payload that flex items can match.
inline constexpr std::uint32_t MOST_FLEX_BYTES = MAX_FLEX_OFFSET + sizeof(std::uint32_t);
/// Longest part of a frame that rules can match: headers of a tunnel, then Ethernet, VLAN tags, IP,
/// UDP, the last flex item.
inline constexpr std::uint32_t MOST_KEY_BYTES = MOST_TUNNEL_BYTES + ETHERNET_SIZE +
                                                MOST_VLAN_TAGS * VLAN_TAG_SIZE + MOST_IP_BYTES +
                                                UDP_SIZE + MOST_FLEX_BYTES;

/// Bytes of a UDP payload that a match compares, from its first one on; 0: none. `items`: the flex
/// items of the interface.
[[nodiscard]] std::uint32_t flex_bytes_of(const FlowMatch& match,
                                          const std::vector<FlexItemConfig>& items);
/// Bytes of a frame that a match compares, if it has neither VLAN tags nor options, nor IPv6.
[[nodiscard]] std::uint32_t header_bytes_of(const FlowMatch& match,
                                            const std::vector<FlexItemConfig>& items);

/// Key of an Ethernet frame with UDP (except later fragments) or eCPRI, after VLAN tags; other
/// frames have no key. `frame` may be the beginning of a frame only. No byte after `length` is
/// read.
PacketKey parse_frame(const std::uint8_t* frame, std::uint32_t length) noexcept;
/// Like the previous one, for a packet within a frame: after an Ethernet header that ends at `at`
/// with `eth_type`. Offsets are relative to the frame.
PacketKey parse_frame(const std::uint8_t* frame, std::uint32_t length, std::uint32_t at,
                      std::uint16_t eth_type) noexcept;

/// Whether what follows the first `captured` bytes of a longer frame does not change its key, nor
/// the first `flex_bytes` of its UDP payload. `udp`: else, the key of UDP is not needed.
[[nodiscard]] bool has_key(const std::uint8_t* frame, std::uint32_t captured, bool udp,
                           std::uint32_t flex_bytes) noexcept;

/// Input of rules: the key, and the packet's bytes if they are known.
struct PacketView {
  PacketKey key;
  /// Starts with the first byte of the frame, or of a socket's payload; empty: unknown.
  std::span<const std::uint8_t> bytes{};
  /// Length of the whole frame; `bytes` may be its beginning.
  std::uint32_t length{0};

  static PacketView of_frame(const std::uint8_t* frame, std::uint32_t length) noexcept {
    return of_beginning(frame, length, length);
  }
  /// `captured`: bytes at `frame`; they include all headers.
  static PacketView of_beginning(const std::uint8_t* frame, std::uint32_t captured,
                                 std::uint32_t length) noexcept {
    return {parse_frame(frame, captured), {frame, captured}, length};
  }
  /// `room`: buffer for the concatenated beginnings of several pieces.
  static PacketView of_pieces(const Pieces& packet,
                              std::span<std::uint8_t, MOST_KEY_BYTES> room) noexcept;
};

}  // namespace daqiri::steering
