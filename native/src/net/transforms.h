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

/// EtherType of an Ethernet frame in GRE (transparent Ethernet bridging, RFC 1701).
inline constexpr std::uint16_t ETHERTYPE_BRIDGED = 0x6558;
inline constexpr std::uint8_t PROTOCOL_GRE = 47;
/// Destination and source of an Ethernet header.
inline constexpr std::uint32_t ADDRESSES_SIZE = 12;
inline constexpr std::uint32_t VXLAN_SIZE = 8;
/// Without optional fields.
inline constexpr std::uint32_t GRE_SIZE = 4;

// --- Packets in pieces

/// A packet as consecutive pieces of memory.
struct Pieces {
  /// In addition to segments: headers before them, and a separate Ethernet header before these. Not
  /// initialized beyond `count`: to clear it for each packet takes longer than all else here.
  std::array<iovec, MAX_NUM_SEGS + 2> at;
  std::size_t count{0};
  std::uint32_t length{0};

  /// To the segments of a packet.
  void set(const Burst& burst, std::uint32_t packet) noexcept {
    count = 0;
    length = 0;
    for (int s = 0; s < burst.hdr.hdr.num_segs; ++s)
      add(burst.pkts[s][packet], burst.pkt_lens[s][packet]);
  }
  void add(void* data, std::uint32_t size) noexcept {
    at[count++] = {data, size};
    length += size;
  }
  /// Appends the bytes of `packet` from `from` up to `to`.
  void add(const Pieces& packet, std::uint32_t from, std::uint32_t to) noexcept;
  /// [from, from + size) must be inside the packet.
  void copy(std::uint32_t from, std::uint32_t size, std::uint8_t* to) const noexcept;
};

// --- Removing headers

/// The rest of a frame: an Ethernet header, then the bytes from `payload` to `end`. Offsets are
/// relative to the frame's first byte.
struct Remains {
  /// Offset of the Ethernet addresses.
  std::uint32_t addresses{0};
  std::uint32_t payload{ETHERNET_SIZE};
  std::uint32_t end{ETHERNET_SIZE};
  /// EtherType before the payload.
  std::uint16_t eth_type{0};

  [[nodiscard]] std::uint32_t length() const noexcept { return ETHERNET_SIZE + (end - payload); }
  /// Writes ETHERNET_SIZE bytes.
  void store_ethernet(const std::uint8_t* frame, std::uint8_t* out) const noexcept {
    std::memmove(out, frame + addresses, ADDRESSES_SIZE);
    store_be16(out + ADDRESSES_SIZE, eth_type);
  }
};

/// The frame without its outermost `tags`, which must exist and be captured.
Remains without_tags(const std::uint8_t* frame, std::uint32_t length, unsigned tags) noexcept;

/// Builds a frame from the rest, in place. Returns its beginning.
inline std::uint8_t* take_off(std::uint8_t* frame, const Remains& remains) noexcept {
  std::uint8_t* begin = frame + remains.payload - ETHERNET_SIZE;
  remains.store_ethernet(frame, begin);
  return begin;
}

/// The headers of a tunnel before a packet: RFC 7348 (VXLAN), RFC 2784 and RFC 2890 (GRE), RFC 7637
/// (NVGRE), over IPv4.
struct TunnelHeaders {
  /// NONE: no tunnel. NVGRE is GRE with Ethernet frames, a key and no other option.
  TunnelType type{TunnelType::NONE};
  /// Number of VLAN tags before them, without priority tags.
  std::uint8_t tags{0};
  /// Whether the packet in the tunnel is complete: no fragment, and all lengths fit. If not,
  /// `inner` is undefined.
  bool whole{false};
  std::uint16_t udp_src{0};
  std::uint16_t udp_dst{0};
  /// GRE: protocol of the packet in the tunnel.
  std::uint16_t protocol{0};
  /// VNI or TNI.
  std::uint32_t network{0};
  /// For NVGRE.
  std::uint8_t flow_id{0};
  std::uint32_t ipv4_src{0};
  std::uint32_t ipv4_dst{0};
  /// The packet in the tunnel; without an Ethernet header, it gets the outer addresses.
  Remains inner;
};

/// Longest part of a frame that contains headers of a tunnel: VLAN tags, the longest IPv4 header,
/// UDP and VXLAN or the longest GRE header.
inline constexpr std::uint32_t MOST_TUNNEL_BYTES = 14 + 4 * MOST_VLAN_TAGS + 60 + 16;

/// For a frame of `length` bytes, of which `captured` are available. No other byte is read.
TunnelHeaders read_tunnel(const std::uint8_t* frame, std::uint32_t captured,
                          std::uint32_t length) noexcept;

// --- Adding headers

/// Compiled headers that the actions of a transmit flow put before packets; fields that differ
/// between packets are set in `write`.
class Prefix {
 public:
  /// At most one of the actions may be a tunnel. Addresses must be valid.
  explicit Prefix(std::span<const FlowAction> actions);

  /// Number of bytes that `write` writes.
  [[nodiscard]] std::uint32_t size() const noexcept {
    return static_cast<std::uint32_t>(bytes_.size());
  }
  /// Number of bytes at a packet's beginning that these headers replace.
  [[nodiscard]] std::uint32_t replaces() const noexcept { return replaces_; }
  /// Number of bytes by which a packet grows.
  [[nodiscard]] std::uint32_t overhead() const noexcept { return size() - replaces_; }
  /// Write the headers for a packet of `length` bytes. `packet`: its first ETHERNET_SIZE bytes, or
  /// all if it is shorter. `entropy`: a number that packets of a connection have in common; it
  /// selects the UDP source port if none is configured. Returns errno; 0: success.
  int write(const std::uint8_t* packet, std::uint32_t length, std::uint32_t entropy,
            std::uint8_t* out) const noexcept;

 private:
  void add_tunnel(const TunnelConfig& tunnel, const std::vector<std::uint8_t>& outer_tags);

  std::vector<std::uint8_t> bytes_;
  std::uint32_t replaces_{0};
  /// Offsets of the packet's own Ethernet addresses, and of the outer IPv4 header; NOWHERE: not
  /// present.
  static constexpr std::uint32_t NOWHERE = UINT32_MAX;
  std::uint32_t addresses_at_{NOWHERE};
  std::uint32_t ipv4_at_{NOWHERE};
  bool udp_{false};
  bool chooses_port_{false};
  /// Sum of the words of the IPv4 header, without its length and checksum.
  std::uint32_t ipv4_sum_{0};
  /// Required EtherType of packets, because their Ethernet header is not sent; 0: any.
  std::uint16_t eth_type_{0};
};

}  // namespace daqiri
