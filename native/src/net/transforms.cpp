#include "net/transforms.h"

#include <algorithm>
#include <cerrno>

namespace daqiri {

// --- Packets in pieces

void Pieces::add(const Pieces& packet, std::uint32_t from, std::uint32_t to) noexcept {
  std::uint32_t begin = 0;
  for (std::size_t i = 0; i < packet.count && begin < to; ++i) {
    const auto size = static_cast<std::uint32_t>(packet.at[i].iov_len);
    const std::uint32_t first = std::max(from, begin) - begin;
    const std::uint32_t last = std::min(to - begin, size);
    if (first < last) add(static_cast<std::uint8_t*>(packet.at[i].iov_base) + first, last - first);
    begin += size;
  }
}

void Pieces::copy(std::uint32_t from, std::uint32_t size, std::uint8_t* to) const noexcept {
  for (std::size_t i = 0; i < count && size > 0; ++i) {
    const auto piece = static_cast<std::uint32_t>(at[i].iov_len);
    if (from >= piece) {
      from -= piece;
      continue;
    }
    const std::uint32_t n = std::min(size, piece - from);
    std::memcpy(to, static_cast<const std::uint8_t*>(at[i].iov_base) + from, n);
    to += n;
    size -= n;
    from = 0;
  }
}

// --- Removing headers

Remains without_tags(const std::uint8_t* frame, std::uint32_t length, unsigned tags) noexcept {
  const std::uint32_t payload = ETHERNET_SIZE + tags * VLAN_TAG_SIZE;
  return {0, payload, length, load_be16(frame + payload - 2)};
}

namespace {

constexpr std::uint32_t VXLAN_HAS_VNI = 0x0800'0000;
// Flags of a GRE header.
constexpr std::uint16_t HAS_CHECKSUM = 0x8000;
constexpr std::uint16_t HAS_ROUTING = 0x4000;
constexpr std::uint16_t HAS_KEY = 0x2000;
constexpr std::uint16_t HAS_SEQUENCE = 0x1000;
constexpr std::uint16_t VERSION = 0x0007;

/// Sets the Ethernet frame in a tunnel, from `at` to `end`; `captured` bytes are available.
void take_frame(const std::uint8_t* frame, std::uint32_t captured, std::uint32_t at,
                std::uint32_t end, TunnelHeaders& headers) noexcept {
  if (end < at + ETHERNET_SIZE || captured < at + ETHERNET_SIZE) {
    headers.whole = false;
    return;
  }
  const std::uint32_t payload = at + ETHERNET_SIZE;
  headers.inner = {at, payload, end, load_be16(frame + payload - 2)};
}

/// `at`: the UDP header; `end`: end of the IPv4 packet.
void read_vxlan(const std::uint8_t* frame, std::uint32_t captured, std::uint32_t at,
                std::uint32_t end, TunnelHeaders& headers) noexcept {
  constexpr std::uint32_t SIZE = UDP_SIZE + VXLAN_SIZE;
  if (captured - at < SIZE || (load_be32(frame + at + UDP_SIZE) & VXLAN_HAS_VNI) == 0) return;
  headers.type = TunnelType::VXLAN;
  headers.udp_src = load_be16(frame + at);
  headers.udp_dst = load_be16(frame + at + 2);
  headers.network = load_be32(frame + at + UDP_SIZE + 4) >> 8U;
  const std::uint32_t udp_end = at + load_be16(frame + at + 4);
  headers.whole = headers.whole && udp_end <= end;
  take_frame(frame, captured, at + SIZE, udp_end, headers);
}

/// `at`: the GRE header; `end`: end of the IPv4 packet.
void read_gre(const std::uint8_t* frame, std::uint32_t captured, std::uint32_t at,
              std::uint32_t end, TunnelHeaders& headers) noexcept {
  if (captured - at < GRE_SIZE) return;
  const std::uint16_t flags = load_be16(frame + at);
  if ((flags & VERSION) != 0) return;
  headers.protocol = load_be16(frame + at + 2);
  const bool keyed = (flags & HAS_KEY) != 0;
  const std::uint32_t key_at = at + GRE_SIZE + ((flags & HAS_CHECKSUM) != 0 ? 4 : 0);
  const std::uint32_t payload = key_at + (keyed ? 4 : 0) + ((flags & HAS_SEQUENCE) != 0 ? 4 : 0);
  if (captured < payload) return;
  headers.type = TunnelType::GRE;
  headers.whole = headers.whole && (flags & HAS_ROUTING) == 0 && payload <= end;
  const bool bridged = headers.protocol == ETHERTYPE_BRIDGED;
  if (bridged && (flags & ~HAS_KEY) == 0 && keyed) {
    headers.type = TunnelType::NVGRE;
    headers.network = load_be32(frame + key_at) >> 8U;
    headers.flow_id = frame[key_at + 3];
  }
  if (bridged) return take_frame(frame, captured, payload, end, headers);
  headers.inner = {0, payload, end, headers.protocol};
}

}  // namespace

TunnelHeaders read_tunnel(const std::uint8_t* frame, std::uint32_t captured,
                          std::uint32_t length) noexcept {
  TunnelHeaders headers;
  if (captured < ETHERNET_SIZE) return headers;
  std::uint32_t at = ETHERNET_SIZE;
  std::uint16_t eth_type = load_be16(frame + ETHERNET_SIZE - 2);
  headers.tags = skip_vlan_tags(frame, captured, at, eth_type).vlans;
  Ipv4Header ip;
  // Later fragments do not contain the headers of the tunnel.
  if (eth_type != ETHERTYPE_IPV4 || !ip.parse(frame + at, captured - at) || !ip.first_fragment())
    return headers;
  const std::uint32_t end = at + ip.length;
  headers.whole = !ip.fragmented() && end <= length;
  headers.ipv4_src = ip.source;
  headers.ipv4_dst = ip.destination;
  if (ip.protocol == PROTOCOL_UDP) read_vxlan(frame, captured, at + ip.size, end, headers);
  if (ip.protocol == PROTOCOL_GRE) read_gre(frame, captured, at + ip.size, end, headers);
  return headers;
}

// --- Adding headers

namespace {

/// Range of dynamic ports, as recommended by RFC 7348.
constexpr std::uint32_t FIRST_PORT = 49152;
constexpr std::uint32_t NUM_PORTS = 16384;
constexpr std::uint32_t MOST_IPV4_BYTES = 65535;

/// Inserts a tag before `tags`, whose first is the outermost.
void push_tag(const VlanActionConfig& vlan, std::vector<std::uint8_t>& tags) {
  std::uint8_t tag[VLAN_TAG_SIZE];
  store_be16(tag, vlan.ethertype_);
  store_be16(tag + 2, static_cast<std::uint16_t>(vlan.pcp_ << 13U | vlan.dei_ << 12U |
                                                 (vlan.vlan_id_ & 0xFFFU)));
  tags.insert(tags.begin(), std::begin(tag), std::end(tag));
}

template <typename Bytes>
void append(std::vector<std::uint8_t>& to, const Bytes& bytes) {
  to.insert(to.end(), std::begin(bytes), std::end(bytes));
}

}  // namespace

void Prefix::add_tunnel(const TunnelConfig& tunnel, const std::vector<std::uint8_t>& outer_tags) {
  MacAddress source{};
  MacAddress destination{};
  parse_mac(tunnel.outer_eth_src_, source);
  parse_mac(tunnel.outer_eth_dst_, destination);
  append(bytes_, destination);
  append(bytes_, source);
  append(bytes_, outer_tags);
  const std::uint8_t eth_type[] = {ETHERTYPE_IPV4 >> 8U, ETHERTYPE_IPV4 & 0xFFU};
  append(bytes_, eth_type);

  ipv4_at_ = size();
  udp_ = tunnel.type_ == TunnelType::VXLAN;
  const Ipv4Header header{.service = tunnel.outer_ipv4_tos_,
                          .time_to_live = tunnel.outer_ipv4_ttl_,
                          .protocol = udp_ ? PROTOCOL_UDP : PROTOCOL_GRE,
                          .source = ntohl(inet_addr(tunnel.outer_ipv4_src_.c_str())),
                          .destination = ntohl(inet_addr(tunnel.outer_ipv4_dst_.c_str()))};
  std::uint8_t ipv4[IPV4_SIZE];
  header.store(ipv4);
  store_be16(ipv4 + 10, 0);  // the checksum is computed per packet
  for (std::uint32_t i = 0; i < IPV4_SIZE; i += 2) ipv4_sum_ += load_be16(ipv4 + i);
  append(bytes_, ipv4);

  std::uint8_t keys[8]{};
  if (udp_) {
    // Checksum 0, as specified in RFC 7348: the frame in the tunnel has its own checksums.
    std::uint8_t udp[UDP_SIZE]{};
    store_udp(udp, tunnel.outer_udp_src_, tunnel.outer_udp_dst_, 0, 0);
    chooses_port_ = tunnel.outer_udp_src_ == 0;
    append(bytes_, udp);
    store_be32(keys, VXLAN_HAS_VNI);
    store_be32(keys + 4, tunnel.vni_ << 8U);
    append(bytes_, keys);
  } else if (tunnel.type_ == TunnelType::NVGRE) {
    store_be16(keys, HAS_KEY);
    store_be16(keys + 2, ETHERTYPE_BRIDGED);
    store_be32(keys + 4, tunnel.tni_ << 8U | tunnel.flow_id_);
    append(bytes_, keys);
  } else {
    store_be16(keys + 2, tunnel.gre_protocol_);
    append(bytes_, std::span(keys).first<GRE_SIZE>());
    if (tunnel.gre_protocol_ == ETHERTYPE_BRIDGED) return;
    eth_type_ = tunnel.gre_protocol_;
    replaces_ = ETHERNET_SIZE;
  }
}

Prefix::Prefix(std::span<const FlowAction> actions) {
  std::vector<std::uint8_t> tags;
  std::vector<std::uint8_t> outer_tags;
  const TunnelConfig* tunnel = nullptr;
  for (const FlowAction& action : actions) {
    if (action.type_ == FlowType::TUNNEL_ENCAP) tunnel = &action.tunnel_;
    if (action.type_ == FlowType::VLAN_PUSH)
      push_tag(action.vlan_, tunnel == nullptr ? tags : outer_tags);
  }
  if (tunnel != nullptr) add_tunnel(*tunnel, outer_tags);
  if (tags.empty() || eth_type_ != 0) return;
  addresses_at_ = size();
  bytes_.resize(bytes_.size() + ADDRESSES_SIZE);
  append(bytes_, tags);
  replaces_ = ADDRESSES_SIZE;
}

int Prefix::write(const std::uint8_t* packet, std::uint32_t length, std::uint32_t entropy,
                  std::uint8_t* out) const noexcept {
  if (length < ETHERNET_SIZE) return EINVAL;
  if (eth_type_ != 0 && load_be16(packet + ADDRESSES_SIZE) != eth_type_) return EPROTO;
  const std::uint32_t after = size() + (length - replaces_);
  std::memcpy(out, bytes_.data(), bytes_.size());
  if (addresses_at_ != NOWHERE) std::memcpy(out + addresses_at_, packet, ADDRESSES_SIZE);
  if (ipv4_at_ == NOWHERE) return 0;
  const std::uint32_t ipv4_length = after - ipv4_at_;
  if (ipv4_length > MOST_IPV4_BYTES) return EMSGSIZE;
  std::uint8_t* ipv4 = out + ipv4_at_;
  store_be16(ipv4 + 2, static_cast<std::uint16_t>(ipv4_length));
  std::uint32_t sum = ipv4_sum_ + ipv4_length;
  sum = (sum & 0xFFFFU) + (sum >> 16U);
  sum = (sum & 0xFFFFU) + (sum >> 16U);
  store_be16(ipv4 + 10, static_cast<std::uint16_t>(~sum));
  if (!udp_) return 0;
  std::uint8_t* udp = ipv4 + IPV4_SIZE;
  if (chooses_port_) store_be16(udp, static_cast<std::uint16_t>(FIRST_PORT + entropy % NUM_PORTS));
  store_be16(udp + 4, static_cast<std::uint16_t>(ipv4_length - IPV4_SIZE));
  return 0;
}

}  // namespace daqiri
