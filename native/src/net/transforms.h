/// VLAN tags and tunnels: headers that are removed from received frames or added to sent frames.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "burst/burst.h"
#include "daqiri/flows.h"
#include "net/headers.h"

namespace daqiri {

/// Of an Ethernet frame in GRE (transparent Ethernet bridging, RFC 1701).
inline constexpr std::uint16_t ETHERTYPE_BRIDGED = 0x6558;
inline constexpr std::uint8_t PROTOCOL_GRE = 47;
/// Destination and source of an Ethernet header.
inline constexpr std::uint32_t ADDRESSES_SIZE = 12;
inline constexpr std::uint32_t VXLAN_SIZE = 8;
/// Without the optional fields.
inline constexpr std::uint32_t GRE_SIZE = 4;

// --- Packets in pieces

/// A packet as pieces of memory, one behind the other.
struct Pieces {
  /// Beside segments: headers in front of them, and in front of these an Ethernet header of its
  /// own.
  std::array<iovec, MAX_NUM_SEGS + 2> at{};
  std::size_t count{0};
  std::uint32_t length{0};

  /// Of the segments of a packet.
  static Pieces of(const Burst& burst, std::uint32_t packet) noexcept {
    Pieces pieces;
    for (int s = 0; s < burst.hdr.hdr.num_segs; ++s)
      pieces.add(burst.pkts[s][packet], burst.pkt_lens[s][packet]);
    return pieces;
  }
  void add(void* data, std::uint32_t size) noexcept {
    at[count++] = {data, size};
    length += size;
  }
  /// Appends the bytes of `packet` from `from` up to `to`.
  void add(const Pieces& packet, std::uint32_t from, std::uint32_t to) noexcept;
  /// [from, from + size) lies within them.
  void copy(std::uint32_t from, std::uint32_t size, std::uint8_t* to) const noexcept;
};

// --- Taking headers off

/// What is left of a frame: an Ethernet header, then the bytes from `payload` to `end`. Places are
/// counted from the frame's first byte.
struct Remains {
  /// Of the Ethernet addresses.
  std::uint32_t addresses{0};
  std::uint32_t payload{ETHERNET_SIZE};
  std::uint32_t end{ETHERNET_SIZE};
  /// In front of the payload.
  std::uint16_t eth_type{0};

  [[nodiscard]] std::uint32_t length() const noexcept { return ETHERNET_SIZE + (end - payload); }
  /// ETHERNET_SIZE bytes.
  void store_ethernet(const std::uint8_t* frame, std::uint8_t* out) const noexcept {
    std::memmove(out, frame + addresses, ADDRESSES_SIZE);
    store_be16(out + ADDRESSES_SIZE, eth_type);
  }
};

/// Without its outermost `tags`, which it has, and which lie within the `captured` bytes.
Remains without_tags(const std::uint8_t* frame, std::uint32_t length, unsigned tags) noexcept;

/// Makes a frame of what is left of one, in the same place. Returns where it begins.
inline std::uint8_t* take_off(std::uint8_t* frame, const Remains& remains) noexcept {
  std::uint8_t* begin = frame + remains.payload - ETHERNET_SIZE;
  remains.store_ethernet(frame, begin);
  return begin;
}

/// The headers of a tunnel in front of a packet: RFC 7348 (VXLAN), RFC 2784 and RFC 2890 (GRE), RFC
/// 7637 (NVGRE), over IPv4.
struct TunnelHeaders {
  /// NONE: there are none. NVGRE is GRE, too: of Ethernet frames, with a key and nothing else.
  TunnelType type{TunnelType::NONE};
  /// VLAN tags in front of them.
  std::uint8_t tags{0};
  /// The packet in the tunnel is here, from its first byte to its last: no fragment, no length that
  /// does not fit. If not, `inner` says nothing.
  bool whole{false};
  std::uint16_t udp_src{0};
  std::uint16_t udp_dst{0};
  /// GRE: what is in the tunnel.
  std::uint16_t protocol{0};
  /// VNI or TNI.
  std::uint32_t network{0};
  /// NVGRE.
  std::uint8_t flow_id{0};
  std::uint32_t ipv4_src{0};
  std::uint32_t ipv4_dst{0};
  /// The packet in the tunnel; one without Ethernet header gets the outer addresses.
  Remains inner;
};

/// Bytes from the beginning of a frame on behind which no headers of a tunnel are: VLAN tags, the
/// longest IPv4 header, UDP and VXLAN or the longest of GRE.
inline constexpr std::uint32_t MOST_TUNNEL_BYTES = 14 + 4 * MOST_VLAN_TAGS + 60 + 16;

/// Of a frame of `length` bytes, of which `captured` are here. None of the others is read.
TunnelHeaders read_tunnel(const std::uint8_t* frame, std::uint32_t captured,
                          std::uint32_t length) noexcept;

// --- Putting headers in front

/// Headers that the actions of a transmit flow put in front of packets, compiled: what differs from
/// packet to packet is filled in.
class Prefix {
 public:
  /// At most one of the actions is a tunnel. Addresses are valid.
  explicit Prefix(std::span<const FlowAction> actions);

  /// Bytes that `write` writes.
  [[nodiscard]] std::uint32_t size() const noexcept {
    return static_cast<std::uint32_t>(bytes_.size());
  }
  /// Bytes of a packet's beginning that they stand for: the packet goes on behind these.
  [[nodiscard]] std::uint32_t replaces() const noexcept { return replaces_; }
  /// Bytes by which a packet grows.
  [[nodiscard]] std::uint32_t overhead() const noexcept { return size() - replaces_; }
  /// For a packet of `length` bytes, the first of which are `packet`: ETHERNET_SIZE of them, or all
  /// where there are fewer. `entropy`: a number that packets of a conversation have in common; it
  /// chooses the UDP source port where no port is given. Returns errno; 0: it was written.
  int write(const std::uint8_t* packet, std::uint32_t length, std::uint32_t entropy,
            std::uint8_t* out) const noexcept;

 private:
  void add_tunnel(const TunnelConfig& tunnel, const std::vector<std::uint8_t>& outer_tags);

  std::vector<std::uint8_t> bytes_;
  std::uint32_t replaces_{0};
  /// Where the packet's own Ethernet addresses go, and the outer IPv4 header; NOWHERE: there are
  /// none.
  static constexpr std::uint32_t NOWHERE = UINT32_MAX;
  std::uint32_t addresses_at_{NOWHERE};
  std::uint32_t ipv4_at_{NOWHERE};
  bool udp_{false};
  bool chooses_port_{false};
  /// Sum of the words of the IPv4 header, without its length and checksum.
  std::uint32_t ipv4_sum_{0};
  /// What packets must be, since their Ethernet header does not go along; 0: anything.
  std::uint16_t eth_type_{0};
};

}  // namespace daqiri
