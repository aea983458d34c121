#include "steering/packet_key.h"

#include <algorithm>

#include "net/headers.h"

namespace daqiri::steering {

namespace {

/// `at`: the UDP header; `end`: that of the IP packet.
void read_udp(const std::uint8_t* frame, std::uint32_t at, std::uint32_t end,
              PacketKey& key) noexcept {
  key.udp_src = load_be16(frame + at);
  key.udp_dst = load_be16(frame + at + 2);
  key.payload_at = at + UDP_SIZE;
  key.payload_end = end;
}

void read_ipv4(const std::uint8_t* frame, std::uint32_t length, std::uint32_t at,
               PacketKey& key) noexcept {
  Ipv4Header ip;
  if (!ip.parse(frame + at, length - at) || ip.protocol != PROTOCOL_UDP) return;
  // Only the first fragment has the UDP header. The frame may be shorter than the length in the IP
  // header: a header segment contains headers only.
  const std::uint32_t headers = ip.size + UDP_SIZE;
  if (!ip.first_fragment() || ip.length < headers || length - at < headers) return;
  key.ipv4_udp = true;
  key.ipv4_len = ip.length;
  key.ipv4_src = ip.source;
  key.ipv4_dst = ip.destination;
  // Excludes padding after the packet, and truncated bytes.
  read_udp(frame, at + ip.size, at + std::min<std::uint32_t>(ip.length, length - at), key);
}

// Not inlined, because it would slow down IPv4.
[[gnu::noinline]] void read_ipv6(const std::uint8_t* frame, std::uint32_t length, std::uint32_t at,
                                 PacketKey& key) noexcept {
  Ipv6Header ip;
  if (!ip.parse(frame + at, length - at) || !ip.has_payload || ip.protocol != PROTOCOL_UDP) return;
  const std::uint32_t headers = ip.size + UDP_SIZE;
  const std::uint32_t ip_length = IPV6_SIZE + ip.length;
  if (ip.size > MOST_IP_BYTES || ip_length < headers || length - at < headers) return;
  key.ipv6_udp = true;
  read_udp(frame, at + ip.size, at + std::min(ip_length, length - at), key);
}

/// eCPRI Specification V2.0: the common header (revision, type, size), then the message.
void read_ecpri(const std::uint8_t* frame, std::uint32_t length, std::uint32_t at,
                PacketKey& key) noexcept {
  constexpr std::uint32_t COMMON_HEADER = 4;
  if (length - at < COMMON_HEADER) return;
  key.ecpri = true;
  key.ecpri_type = frame[at + 1];
  const std::uint32_t size = key.ecpri_type == ECPRI_GENERIC_DATA ? 4 : 2;
  const std::uint32_t announced = load_be16(frame + at + 2);
  at += COMMON_HEADER;
  if (key.ecpri_type > ECPRI_GENERIC_DATA || announced < size || length - at < size) return;
  key.ecpri_has_id = true;
  key.ecpri_id = size == 4 ? load_be32(frame + at) : load_be16(frame + at);
}

}  // namespace

PacketKey parse_frame(const std::uint8_t* frame, std::uint32_t length) noexcept {
  if (length < ETHERNET_SIZE) return {};
  return parse_frame(frame, length, ETHERNET_SIZE, load_be16(frame + ETHERNET_SIZE - 2));
}

PacketKey parse_frame(const std::uint8_t* frame, std::uint32_t length, std::uint32_t at,
                      std::uint16_t eth_type) noexcept {
  PacketKey key;
  key.tags = skip_vlan_tags(frame, length, at, eth_type);
  if (eth_type == ETHERTYPE_IPV4) read_ipv4(frame, length, at, key);
  if (eth_type == ETHERTYPE_IPV6) read_ipv6(frame, length, at, key);
  if (eth_type == ETHERTYPE_ECPRI) read_ecpri(frame, length, at, key);
  return key;
}

PacketView PacketView::of_pieces(const Pieces& packet,
                                 std::span<std::uint8_t, MOST_KEY_BYTES> room) noexcept {
  const std::uint32_t wanted = std::min(packet.length, MOST_KEY_BYTES);
  const auto* bytes = static_cast<const std::uint8_t*>(packet.at[0].iov_base);
  auto size = static_cast<std::uint32_t>(packet.at[0].iov_len);
  if (size < wanted) {
    packet.copy(0, wanted, room.data());
    bytes = room.data();
    size = wanted;
  }
  return {parse_frame(bytes, size), {bytes, size}, packet.length};
}

}  // namespace daqiri::steering
