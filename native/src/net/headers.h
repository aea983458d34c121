/// Ethernet, IPv4, IPv6 and UDP headers.
#pragma once

#include <array>
#include <cstdint>

#include "burst/burst.h"
#include "net/byte_order.h"
#include "net/checksum.h"
#include "net/socket_address.h"

namespace daqiri {

inline constexpr std::uint16_t ETHERTYPE_IPV4 = 0x0800;
inline constexpr std::uint16_t ETHERTYPE_IPV6 = 0x86DD;
inline constexpr std::uint8_t PROTOCOL_TCP = 6;
inline constexpr std::uint8_t PROTOCOL_UDP = 17;

inline constexpr std::uint32_t ETHERNET_SIZE = 14;
inline constexpr std::uint32_t IPV4_SIZE = 20;
inline constexpr std::uint32_t IPV6_SIZE = 40;
inline constexpr std::uint32_t UDP_SIZE = 8;
inline constexpr std::uint32_t TCP_SIZE = 20;
inline constexpr std::uint32_t IPV4_AT = ETHERNET_SIZE;
inline constexpr std::uint32_t UDP_AT = IPV4_AT + IPV4_SIZE;
inline constexpr std::uint32_t HEADERS_SIZE = UDP_AT + UDP_SIZE;

using MacAddress = std::array<std::uint8_t, 6>;
using Ipv6Address = std::array<std::uint8_t, 16>;

// --- Headers as bytes. Fields are in host byte order.

/// RFC 791.
struct Ipv4Header {
  /// Of the header, with its options.
  std::uint32_t size{IPV4_SIZE};
  /// Header and what is behind it, as announced.
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
  /// False when the `captured` bytes at `at` are no whole header.
  bool parse(const std::uint8_t* at, std::uint32_t captured) noexcept {
    if (captured < IPV4_SIZE || at[0] >> 4U != 4) return false;
    size = (at[0] & 0x0FU) * 4U;
    if (size < IPV4_SIZE || captured < size) return false;
    length = load_be16(at + 2);
    identification = load_be16(at + 4);
    fragment = load_be16(at + 6);
    time_to_live = at[8];
    protocol = at[9];
    source = load_be32(at + 12);
    destination = load_be32(at + 16);
    return true;
  }
  /// IPV4_SIZE bytes, no options, with the checksum.
  void store(std::uint8_t* out) const noexcept;
  /// Begun with the pseudo header of what is behind it, `payload` bytes.
  [[nodiscard]] Checksum pseudo_header(std::uint32_t payload) const noexcept;
};

/// RFC 8200.
struct Ipv6Header {
  /// What is behind it, as announced.
  std::uint16_t payload{0};
  std::uint8_t next{0};
  std::uint8_t hop_limit{64};
  Ipv6Address source{};
  Ipv6Address destination{};

  /// IPV6_SIZE bytes.
  void store(std::uint8_t* out) const noexcept;
  /// As Ipv4Header has it; `protocol` is behind all extensions.
  [[nodiscard]] Checksum pseudo_header(std::uint32_t payload_bytes,
                                       std::uint8_t protocol) const noexcept;
};

/// RFC 768. UDP_SIZE bytes; `length` with the header; `checksum` 0: none.
void store_udp(std::uint8_t* out, std::uint16_t source, std::uint16_t destination,
               std::uint16_t length, std::uint16_t checksum) noexcept;

/// Writes the IP header of `payload` bytes from one address to another of its family; what does not
/// fit the length field is announced as 0. Returns its size. `checksum` gets the pseudo header.
std::uint32_t store_ip(std::uint8_t* out, const SocketAddress& from, const SocketAddress& to,
                       std::uint8_t protocol, std::uint32_t payload, Checksum& checksum) noexcept;
/// What it returns.
[[nodiscard]] constexpr std::uint32_t ip_size(bool ipv6) noexcept {
  return ipv6 ? IPV6_SIZE : IPV4_SIZE;
}

// --- Headers of packets to transmit

/// One packet of a burst as a single run of bytes over its segments.
///
/// Where a segment ends is said by its length, once packet lengths are set; the last segment
/// reaches to the end of its buffer in any case. Before that, with several segments, the first
/// holds the headers (42 bytes) and each further one fills its buffer.
class PacketBytes {
 public:
  /// `packet` is below burst.owned, and none of its segments was freed.
  PacketBytes(const Burst& burst, std::uint32_t packet) noexcept;

  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }
  // [offset, offset + size) lies within capacity.
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

// Each returns false, and writes nothing, when the frame it announces does not fit the packet's
// buffers.

bool write_ethernet(PacketBytes& packet, const MacAddress& destination,
                    const MacAddress& source) noexcept;

/// TTL 64, don't fragment, header checksum. A UDP checksum behind it is set to 0 (none): it covers
/// the addresses.
bool write_ipv4(PacketBytes& packet, const Ipv4Fields& fields) noexcept;

/// With UDP checksum 0 (none, RFC 768) until write_udp_payload.
bool write_udp(PacketBytes& packet, const UdpFields& fields) noexcept;

/// Copy the payload. Where IPv4 and UDP headers in front of it announce exactly `size` bytes, the
/// UDP checksum is filled in. `data` may be the payload's own place: nothing is copied then, only
/// the checksum is computed.
bool write_udp_payload(PacketBytes& packet, const void* data, std::uint32_t size) noexcept;

/// Copy the payload of a packet without headers.
bool write_bare_payload(PacketBytes& packet, const void* data, std::uint32_t size) noexcept;

}  // namespace daqiri
