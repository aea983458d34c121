#include "steering/packet_key.h"

#include <algorithm>

#include "net/headers.h"

namespace daqiri::steering {

namespace {

constexpr std::uint32_t ECPRI_HEADER = 4;
/// With the longest id of a message.
constexpr std::uint32_t ECPRI_BYTES = ECPRI_HEADER + sizeof(std::uint32_t);

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
  if (length - at < ECPRI_HEADER) return;
  key.ecpri = true;
  key.ecpri_type = frame[at + 1];
  const std::uint32_t size = key.ecpri_type == ECPRI_GENERIC_DATA ? 4 : 2;
  const std::uint32_t announced = load_be16(frame + at + 2);
  at += ECPRI_HEADER;
  if (key.ecpri_type > ECPRI_GENERIC_DATA || announced < size || length - at < size) return;
  key.ecpri_has_id = true;
  key.ecpri_id = size == 4 ? load_be32(frame + at) : load_be16(frame + at);
}

}  // namespace

std::uint32_t flex_bytes_of(const FlowMatch& match, const std::vector<FlexItemConfig>& items) {
  if (match.type_ != FlowMatchType::FLEX_ITEM) return 0;
  const auto item =
      std::ranges::find(items, match.flex_item_match_.flex_item_id_, &FlexItemConfig::id_);
  return item == items.end() ? MOST_FLEX_BYTES : item->offset_ + sizeof(std::uint32_t);
}

std::uint32_t header_bytes_of(const FlowMatch& match, const std::vector<FlexItemConfig>& items) {
  if (match.type_ == FlowMatchType::ECPRI) return ETHERNET_SIZE + ECPRI_BYTES;
  return HEADERS_SIZE + flex_bytes_of(match, items);
}

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

bool has_key(const std::uint8_t* frame, std::uint32_t captured, bool udp,
             std::uint32_t flex_bytes) noexcept {
  if (captured < ETHERNET_SIZE) return false;
  std::uint32_t at = ETHERNET_SIZE;
  std::uint16_t eth_type = load_be16(frame + at - 2);
  const VlanTags tags = skip_vlan_tags(frame, captured, at, eth_type);
  // More tags than any key has, or the beginning of one.
  if (is_vlan_tag(eth_type)) return tags.all == MOST_VLAN_TAGS;
  const std::uint32_t rest = captured - at;
  if (eth_type == ETHERTYPE_ECPRI) return rest >= ECPRI_BYTES;
  if (!udp || (eth_type != ETHERTYPE_IPV4 && eth_type != ETHERTYPE_IPV6)) return true;
  const std::uint8_t* const packet = frame + at;
  const auto has_udp = [&](std::uint32_t ip_size, std::uint32_t ip_length) {
    return rest >= std::min(ip_length, ip_size + UDP_SIZE + flex_bytes);
  };
  if (eth_type == ETHERTYPE_IPV4) {
    if (rest < IPV4_SIZE) return false;
    Ipv4Header ip;
    // Another version, or options that follow.
    if (!ip.parse(packet, rest)) return packet[0] >> 4U != 4 || (packet[0] & 0x0FU) * 4U <= rest;
    return ip.protocol != PROTOCOL_UDP || !ip.first_fragment() || has_udp(ip.size, ip.length);
  }
  if (rest < IPV6_SIZE) return false;
  Ipv6Header ip;
  if (!ip.parse(packet, rest)) return true;
  if (!ip.has_payload) return !ip.first_fragment();
  return ip.protocol != PROTOCOL_UDP || has_udp(ip.size, IPV6_SIZE + ip.length);
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
