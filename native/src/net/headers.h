/// Ethernet, IPv4 and UDP headers of packets to transmit.
#pragma once

#include <array>
#include <cstdint>

#include "burst/burst.h"

namespace daqiri {

inline constexpr std::uint32_t ETHERNET_SIZE = 14;
inline constexpr std::uint32_t IPV4_SIZE = 20;
inline constexpr std::uint32_t UDP_SIZE = 8;
inline constexpr std::uint32_t IPV4_AT = ETHERNET_SIZE;
inline constexpr std::uint32_t UDP_AT = IPV4_AT + IPV4_SIZE;
inline constexpr std::uint32_t HEADERS_SIZE = UDP_AT + UDP_SIZE;

using MacAddress = std::array<std::uint8_t, 6>;

/// The Internet checksum (RFC 1071) over pieces of any length.
class Checksum {
 public:
  void add(const std::uint8_t* data, std::size_t size) noexcept;
  /// In host byte order, complemented.
  [[nodiscard]] std::uint16_t value() const noexcept;

 private:
  /// Sum of 16-bit words in memory order, not folded.
  std::uint64_t sum_{0};
  bool odd_{false};
};

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
