/// Packet headers: reads and writes Ethernet, IPv4, IPv6 and UDP; computes the Internet checksum.
#pragma once

#include <endian.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "burst/burst.h"
#include "net/socket_address.h"

namespace daqiri {

inline constexpr std::uint16_t ETHERTYPE_IPV4 = 0x0800;
inline constexpr std::uint16_t ETHERTYPE_IPV6 = 0x86DD;
inline constexpr std::uint16_t ETHERTYPE_ECPRI = 0xAEFE;
inline constexpr std::uint8_t PROTOCOL_TCP = 6;
inline constexpr std::uint8_t PROTOCOL_UDP = 17;

inline constexpr std::uint32_t ETHERNET_SIZE = 14;
inline constexpr std::uint32_t VLAN_TAG_SIZE = 4;
inline constexpr std::uint32_t IPV4_SIZE = 20;
/// Most bytes of a frame that the MTU does not include: the header with two VLAN tags (QinQ).
inline constexpr std::uint32_t FRAME_OVERHEAD = ETHERNET_SIZE + 2 * VLAN_TAG_SIZE;
inline constexpr std::uint32_t IPV6_SIZE = 40;
inline constexpr std::uint32_t UDP_SIZE = 8;
inline constexpr std::uint32_t TCP_SIZE = 20;
inline constexpr std::uint32_t IPV4_AT = ETHERNET_SIZE;
inline constexpr std::uint32_t UDP_AT = IPV4_AT + IPV4_SIZE;
inline constexpr std::uint32_t HEADERS_SIZE = UDP_AT + UDP_SIZE;

using MacAddress = std::array<std::uint8_t, 6>;

/// Returns false unless the text has the form aa:bb:cc:dd:ee:ff.
bool parse_mac(std::string_view text, MacAddress& mac) noexcept;

// --- Big-endian fields

inline std::uint16_t load_be16(const std::uint8_t* at) noexcept {
  return static_cast<std::uint16_t>(at[0] << 8U | at[1]);
}
inline std::uint32_t load_be32(const std::uint8_t* at) noexcept {
  return static_cast<std::uint32_t>(load_be16(at)) << 16U | load_be16(at + 2);
}
inline void store_be16(std::uint8_t* at, std::uint16_t value) noexcept {
  at[0] = static_cast<std::uint8_t>(value >> 8U);
  at[1] = static_cast<std::uint8_t>(value);
}
inline void store_be32(std::uint8_t* at, std::uint32_t value) noexcept {
  store_be16(at, static_cast<std::uint16_t>(value >> 16U));
  store_be16(at + 2, static_cast<std::uint16_t>(value));
}

// --- The Internet checksum

/// RFC 1071, over pieces of any length.
class Checksum {
 public:
  void add(const void* data, std::size_t size) noexcept {
    const auto* at = static_cast<const std::uint8_t*>(data);
    // Separate sums for both halves of 8 bytes need no carries.
    std::uint64_t low = 0;
    std::uint64_t high = 0;
    std::size_t left = size;
    for (; left >= 8; left -= 8, at += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, at, sizeof word);
      low += word & 0xFFFF'FFFFU;
      high += word >> 32U;
    }
    std::uint64_t rest = 0;
    if (left > 0) std::memcpy(&rest, at, left);
    std::uint64_t sum = fold(fold(low) + fold(high) + fold(rest));
    // A piece that begins at an odd byte is added with its bytes swapped (RFC 1071, 2(B)).
    if (odd_) sum = (sum & 0xFFU) << 8U | sum >> 8U;
    sum_ += sum;
    odd_ = odd_ != (size % 2 == 1);
  }
  /// In host byte order, complemented.
  [[nodiscard]] std::uint16_t value() const noexcept {
    return static_cast<std::uint16_t>(~be16toh(static_cast<std::uint16_t>(fold(sum_))));
  }
  /// For UDP, where 0 would mean "none" (RFC 768).
  [[nodiscard]] std::uint16_t udp_value() const noexcept {
    return value() == 0 ? std::uint16_t{0xFFFF} : value();
  }

 private:
  static std::uint64_t fold(std::uint64_t sum) noexcept {
    while (sum >> 16U != 0) sum = (sum & 0xFFFFU) + (sum >> 16U);
    return sum;
  }

  /// Sum of 16-bit words in memory order, not folded.
  std::uint64_t sum_{0};
  bool odd_{false};
};

// --- Headers as bytes. Fields are in host byte order.

/// Most VLAN tags of a frame to read.
inline constexpr unsigned MOST_VLAN_TAGS = 4;

/// IEEE 802.1Q, 802.1ad, and the EtherType used before 802.1ad.
constexpr bool is_vlan_tag(std::uint16_t eth_type) noexcept {
  return eth_type == 0x8100 || eth_type == 0x88A8 || eth_type == 0x9100;
}

inline constexpr std::uint16_t VLAN_ID = 0x0FFF;

/// Numbers of VLAN tags of a frame.
struct VlanTags {
  std::uint8_t all{0};
  /// Without priority tags: with the id 0, a tag has only a priority, and the frame is untagged
  /// (IEEE 802.1Q).
  std::uint8_t vlans{0};
};

/// Skips VLAN tags at `at`, after the EtherType `eth_type`; updates both. `eth_type` remains that
/// of a tag if there are more, or if the frame ends.
inline VlanTags skip_vlan_tags(const std::uint8_t* frame, std::uint32_t length, std::uint32_t& at,
                               std::uint16_t& eth_type) noexcept {
  VlanTags tags;
  for (; tags.all < MOST_VLAN_TAGS && is_vlan_tag(eth_type) && length - at >= VLAN_TAG_SIZE;
       ++tags.all) {
    if ((load_be16(frame + at) & VLAN_ID) != 0) ++tags.vlans;
    eth_type = load_be16(frame + at + 2);
    at += VLAN_TAG_SIZE;
  }
  return tags;
}

/// RFC 791.
struct Ipv4Header {
  /// Size of the header with its options.
  std::uint32_t size{IPV4_SIZE};
  /// Type of service.
  std::uint8_t service{0};
  /// Length of header and payload in the header.
  std::uint16_t length{0};
  std::uint16_t identification{0};
  /// Flags and offset.
  std::uint16_t fragment{0x4000};
  std::uint8_t time_to_live{64};
  std::uint8_t protocol{0};
  std::uint32_t source{0};
  std::uint32_t destination{0};

  [[nodiscard]] bool first_fragment() const noexcept { return (fragment & 0x1FFFU) == 0; }
  [[nodiscard]] bool fragmented() const noexcept { return (fragment & 0x3FFFU) != 0; }
  /// Returns false if the `captured` bytes at `at` contain no complete header.
  bool parse(const std::uint8_t* at, std::uint32_t captured) noexcept {
    if (captured < IPV4_SIZE || at[0] >> 4U != 4) return false;
    size = (at[0] & 0x0FU) * 4U;
    if (size < IPV4_SIZE || captured < size) return false;
    service = at[1];
    length = load_be16(at + 2);
    identification = load_be16(at + 4);
    fragment = load_be16(at + 6);
    time_to_live = at[8];
    protocol = at[9];
    source = load_be32(at + 12);
    destination = load_be32(at + 16);
    return true;
  }
  /// Writes IPV4_SIZE bytes without options, with the checksum.
  void store(std::uint8_t* out) const noexcept;
};

/// RFC 8200, with extension headers.
struct Ipv6Header {
  /// Size of the header with those of its extension headers that were read.
  std::uint32_t size{IPV6_SIZE};
  /// Length of extension headers and payload in the header.
  std::uint16_t length{0};
  std::uint8_t hop_limit{0};
  /// The header after `size` bytes.
  std::uint8_t protocol{0};
  /// Offset, and the flag for more fragments.
  std::uint16_t fragment{0};
  /// Whether `protocol` is that of the payload, at `size`: all extension headers are read and
  /// captured, and the packet is no later fragment.
  bool has_payload{false};

  [[nodiscard]] bool first_fragment() const noexcept { return (fragment & 0xFFF8U) == 0; }
  [[nodiscard]] bool fragmented() const noexcept { return fragment != 0; }
  /// Returns false if the `captured` bytes at `at` contain no complete header without extensions.
  bool parse(const std::uint8_t* at, std::uint32_t captured) noexcept;
};

/// Kinds of IPv6 extension headers that are read. These have their length: hop-by-hop options,
/// routing, destination options.
inline constexpr std::uint8_t IPV6_OPTIONS[] = {0, 43, 60};
inline constexpr std::uint8_t IPV6_FRAGMENT = 44;
inline constexpr std::uint32_t IPV6_EXTENSION_SIZE = 8;
inline constexpr unsigned MOST_IPV6_EXTENSIONS = 8;

/// RFC 768. Writes UDP_SIZE bytes; `length` includes the header; `checksum` 0: none.
void store_udp(std::uint8_t* out, std::uint16_t source, std::uint16_t destination,
               std::uint16_t length, std::uint16_t checksum) noexcept;

/// Writes the IP header (RFC 791, RFC 8200) for `payload` bytes between two addresses of one
/// family; a length that exceeds the length field is written as 0. Returns its size. `checksum`
/// receives the pseudo header.
std::uint32_t store_ip(std::uint8_t* out, const SocketAddress& from, const SocketAddress& to,
                       std::uint8_t protocol, std::uint32_t payload, Checksum& checksum) noexcept;
/// The size that store_ip returns.
[[nodiscard]] constexpr std::uint32_t ip_size(bool ipv6) noexcept {
  return ipv6 ? IPV6_SIZE : IPV4_SIZE;
}

// --- Headers of packets to transmit

/// One packet of a burst as a single range of bytes over its segments.
///
/// After packet lengths are set, they determine where segments end; the last segment always reaches
/// to the end of its buffer. Before that, with several segments, the first one contains the headers
/// (42 bytes), or more, up to the size of its buffer, if the packet is too long; each other one
/// fills its buffer.
class PacketBytes {
 public:
  /// `packet` must be below burst.owned, with no freed segment.
  PacketBytes(const Burst& burst, std::uint32_t packet) noexcept;

  /// Capacity of its buffers.
  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }
  /// Bytes that can be addressed; less than the capacity if a length ends a segment before its
  /// buffer.
  [[nodiscard]] std::uint32_t reach() const noexcept { return reach_; }
  /// Whether `size` bytes can be addressed; if lengths are not set, extends the first segment.
  bool reaches(std::uint32_t size) noexcept;
  // [offset, offset + size) must be within reach.
  void write(std::uint32_t offset, const void* data, std::uint32_t size) noexcept;
  void read(std::uint32_t offset, void* data, std::uint32_t size) const noexcept;
  void add_to(Checksum& checksum, std::uint32_t offset, std::uint32_t size) const noexcept;

 private:
  template <typename F>
  void walk(std::uint32_t offset, std::uint32_t size, F&& piece) const noexcept;

  std::uint8_t* data_[MAX_NUM_SEGS]{};
  std::uint32_t sizes_[MAX_NUM_SEGS]{};
  int num_segments_{0};
  std::uint32_t capacity_{0};
  std::uint32_t reach_{0};
  /// Bytes of the first segment's buffer after its assumed length.
  std::uint32_t spare_{0};
};

struct Ipv4Fields {
  /// Bytes after the IPv4 header.
  std::uint32_t payload{0};
  std::uint8_t protocol{0};
  /// Host byte order.
  std::uint32_t source{0};
  std::uint32_t destination{0};
  std::uint16_t identification{0};
};

struct UdpFields {
  /// Bytes after the UDP header.
  std::uint32_t payload{0};
  std::uint16_t source{0};
  std::uint16_t destination{0};
};

// Each returns false, without writing, if the frame with this length does not fit the packet's
// buffers.

bool write_ethernet(PacketBytes& packet, const MacAddress& destination,
                    const MacAddress& source) noexcept;

/// TTL 64, don't fragment, header checksum. Sets the checksum of a UDP header after it to 0 (none),
/// because it covers the addresses.
bool write_ipv4(PacketBytes& packet, const Ipv4Fields& fields) noexcept;

/// With UDP checksum 0 (none, RFC 768) until write_udp_payload.
bool write_udp(PacketBytes& packet, const UdpFields& fields) noexcept;

/// Copy the payload. If the IPv4 and UDP headers before it have exactly the length `size`, set the
/// UDP checksum. `data` may point to the payload itself: then only the checksum is computed.
bool write_udp_payload(PacketBytes& packet, const void* data, std::uint32_t size) noexcept;

/// Copy the payload of a packet without headers.
bool write_bare_payload(PacketBytes& packet, const void* data, std::uint32_t size) noexcept;

// --- Header fields of captured packets

/// Header fields of one packet, in host byte order; 0 if a header does not exist, or was not
/// captured completely.
struct PacketFields {
  /// Addresses as 48-bit numbers.
  std::uint64_t eth_src{0};
  std::uint64_t eth_dst{0};
  /// After VLAN tags; for link types without EtherType, that of the IP version.
  std::uint16_t eth_type{0};
  /// VLAN id of the outermost tag.
  std::uint16_t vlan{0};
  std::uint8_t ip_version{0};
  /// After IPv6 extension headers.
  std::uint8_t ip_protocol{0};
  /// Time to live, hop limit.
  std::uint8_t ip_ttl{0};
  /// Includes the IP header.
  std::uint32_t ip_length{0};
  std::uint32_t ipv4_src{0};
  std::uint32_t ipv4_dst{0};
  std::array<std::uint8_t, 16> ipv6_src{};
  std::array<std::uint8_t, 16> ipv6_dst{};
  /// 17 (UDP) or 6 (TCP) if the fields below are set; not in later fragments.
  std::uint8_t transport{0};
  std::uint16_t src_port{0};
  std::uint16_t dst_port{0};
  /// Includes the UDP header; a complete datagram has a payload of 8 bytes less. 0 in fragments.
  std::uint16_t udp_length{0};
  std::uint32_t tcp_seq{0};
  std::uint16_t tcp_flags{0};
  /// Captured bytes after the last known header, relative to the packet's beginning.
  std::uint32_t payload_at{0};
  std::uint32_t payload_length{0};
};

/// Whether parse_packet supports a pcap link type.
[[nodiscard]] bool has_fields(std::uint32_t link_type) noexcept;

/// Formats: IEEE 802.3 and 802.1Q, RFC 791, RFC 8200, RFC 768, RFC 9293, and the link types at
/// https://www.tcpdump.org/linktypes.html. No byte after `captured` is read.
PacketFields parse_packet(const std::uint8_t* packet, std::uint32_t captured,
                          std::uint32_t link_type) noexcept;

}  // namespace daqiri
