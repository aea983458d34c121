#include "steering/patterns.h"

#include <algorithm>
#include <iterator>

#include "net/transforms.h"
#include "steering/tunnels.h"

namespace daqiri::steering {

namespace {

constexpr std::uint16_t VXLAN_PORT = 4789;

/// Where fields are in their headers.
constexpr std::size_t ETH_SRC_AT = 6;
constexpr std::size_t IPV4_LENGTH_AT = 2;
constexpr std::size_t IPV4_SOURCE_AT = 12;
constexpr std::size_t IPV4_DESTINATION_AT = 16;
constexpr std::size_t UDP_DESTINATION_AT = 2;
constexpr std::size_t VNI_AT = 4;
constexpr std::size_t GRE_PROTOCOL_AT = 2;
constexpr std::size_t TNI_AT = 4;
constexpr std::size_t FLOW_ID_AT = 7;
constexpr std::size_t ECPRI_TYPE_AT = 1;
constexpr std::size_t ECPRI_ID_AT = 4;

/// Compares the `size` last bytes of `value`, in network byte order.
void compare(HeaderMatch& header, std::size_t at, std::uint32_t value, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) {
    header.value[at + i] = static_cast<std::uint8_t>(value >> 8U * (size - 1 - i));
    header.mask[at + i] = 0xFF;
  }
}

/// All zeros: any.
void compare_mac(HeaderMatch& header, std::size_t at, const MacAddress& mac) {
  if (mac == MacAddress{}) return;
  std::ranges::copy(mac, header.value.begin() + static_cast<std::ptrdiff_t>(at));
  std::fill_n(header.mask.begin() + static_cast<std::ptrdiff_t>(at), mac.size(), 0xFF);
}

/// Host byte order; 0: any.
void compare_address(HeaderMatch& header, std::size_t at, std::uint32_t address) {
  if (address != 0) compare(header, at, address, sizeof address);
}

bool is_any(const PortRange& range) noexcept {
  return range.any() || (range.lo == 0 && range.hi == UINT16_MAX);
}

/// Why a port cannot be compared; empty: it can.
std::string compare_port(HeaderMatch& udp, std::size_t at, const PortRange& range,
                         const char* name) {
  if (is_any(range)) return {};
  if (range.lo != range.hi) {
    return std::string(name) + " is a range of ports (" + std::to_string(range.lo) + "-" +
           std::to_string(range.hi) + "), and a rule compares one";
  }
  compare(udp, at, range.lo, sizeof range.lo);
  return {};
}

void add(Pattern& pattern, Header header, unsigned count = 1) {
  pattern.insert(pattern.end(), count, HeaderMatch{header});
}

/// Appends the headers of the flow's match, for `at` one of the patterns that begin alike.
FlowPatterns with_match(const Pattern& begin, const FlowMatch& match, bool ipv4, bool ipv6) {
  FlowPatterns patterns;
  HeaderMatch udp{Header::UDP};
  patterns.reason = compare_port(udp, 0, match.udp_src_, "udp_src");
  if (patterns.reason.empty())
    patterns.reason = compare_port(udp, UDP_DESTINATION_AT, match.udp_dst_, "udp_dst");
  if (!patterns.reason.empty()) return patterns;
  HeaderMatch ip{Header::IPV4};
  if (match.ipv4_len_ != 0) compare(ip, IPV4_LENGTH_AT, match.ipv4_len_, sizeof match.ipv4_len_);
  compare_address(ip, IPV4_SOURCE_AT, ntohl(match.ipv4_src_));
  compare_address(ip, IPV4_DESTINATION_AT, ntohl(match.ipv4_dst_));
  const auto append = [&](const HeaderMatch& network) {
    Pattern& pattern = patterns.any.emplace_back(begin);
    pattern.push_back(network);
    pattern.push_back(udp);
  };
  if (ipv4) append(ip);
  // What it compares of IPv4, packets of IPv6 do not have.
  if (ipv6 && ip == HeaderMatch{Header::IPV4}) append({Header::IPV6});
  if (patterns.any.empty()) patterns.reason = "no packet matches it";
  return patterns;
}

FlowPatterns of_ecpri(Pattern pattern, const EcpriMatch& match) {
  compare(pattern.back(), pattern.back().header == Header::VLAN ? 2 : ADDRESSES_SIZE,
          ETHERTYPE_ECPRI, sizeof ETHERTYPE_ECPRI);
  HeaderMatch ecpri{Header::ECPRI};
  if (match.match_msg_type_) compare(ecpri, ECPRI_TYPE_AT, match.msg_type_, 1);
  if (match.match_id_) {
    // Without a type, the id may have either size.
    if (!match.match_msg_type_ || match.msg_type_ > ECPRI_GENERIC_DATA)
      return {{}, "messages of this type have no id"};
    compare(ecpri, ECPRI_ID_AT, match.id_, match.msg_type_ == ECPRI_GENERIC_DATA ? 4 : 2);
  }
  if (ecpri.mask != HeaderMatch{Header::ECPRI}.mask) pattern.push_back(ecpri);
  return {{std::move(pattern)}, {}};
}

/// Appends the outer headers, up to the packet in the tunnel; returns why it cannot.
std::string add_tunnel(Pattern& pattern, const TunnelConfig& tunnel) {
  HeaderMatch ip{Header::IPV4};
  compare_address(ip, IPV4_SOURCE_AT, address_of(tunnel.outer_ipv4_src_));
  compare_address(ip, IPV4_DESTINATION_AT, address_of(tunnel.outer_ipv4_dst_));
  pattern.push_back(ip);
  if (tunnel.type_ == TunnelType::VXLAN) {
    if (tunnel.outer_udp_dst_ != VXLAN_PORT) {
      return "cards find VXLAN by its port 4789 only, and outer_udp_dst is " +
             std::to_string(tunnel.outer_udp_dst_);
    }
    HeaderMatch udp{Header::UDP};
    if (tunnel.outer_udp_src_ != 0) compare(udp, 0, tunnel.outer_udp_src_, 2);
    compare(udp, UDP_DESTINATION_AT, tunnel.outer_udp_dst_, 2);
    pattern.push_back(udp);
    HeaderMatch vxlan{Header::VXLAN};
    compare(vxlan, VNI_AT, tunnel.vni_, 3);
    pattern.push_back(vxlan);
    return {};
  }
  HeaderMatch gre{tunnel.type_ == TunnelType::NVGRE ? Header::NVGRE : Header::GRE};
  if (gre.header == Header::NVGRE) {
    compare(gre, TNI_AT, tunnel.tni_, 3);
    if (tunnel.flow_id_ != 0) compare(gre, FLOW_ID_AT, tunnel.flow_id_, 1);
  } else {
    compare(gre, GRE_PROTOCOL_AT, tunnel.gre_protocol_, 2);
  }
  pattern.push_back(gre);
  return {};
}

}  // namespace

FlowPatterns patterns_of(const FlowConfig& flow) {
  if (flow.match_.type_ == FlowMatchType::FLEX_ITEM) return {{}, "a rule compares no flex items"};
  Pattern begin;
  add(begin, Header::ETHERNET);
  const auto decap = tunnel_of(flow);
  if (decap == flow.actions_.end()) {
    add(begin, Header::VLAN, tags_of(flow));
    if (flow.match_.type_ == FlowMatchType::ECPRI) return of_ecpri(begin, flow.match_.ecpri_match_);
    return with_match(begin, flow.match_, true, true);
  }
  const TunnelConfig& tunnel = decap->tunnel_;
  compare_mac(begin.back(), 0, mac_of(tunnel.outer_eth_dst_));
  compare_mac(begin.back(), ETH_SRC_AT, mac_of(tunnel.outer_eth_src_));
  add(begin, Header::VLAN, count_pops(flow.actions_.begin(), decap));
  if (const std::string reason = add_tunnel(begin, tunnel); !reason.empty()) return {{}, reason};
  const unsigned tags = tags_of(flow);
  if (tunnel.type_ != TunnelType::GRE || tunnel.gre_protocol_ == ETHERTYPE_BRIDGED) {
    add(begin, Header::ETHERNET);
    add(begin, Header::VLAN, tags);
    if (flow.match_.type_ == FlowMatchType::ECPRI) return of_ecpri(begin, flow.match_.ecpri_match_);
    return with_match(begin, flow.match_, true, true);
  }
  if (tags > 0 || flow.match_.type_ == FlowMatchType::ECPRI)
    return {{}, "a rule does not compare this in GRE without Ethernet"};
  return with_match(begin, flow.match_, tunnel.gre_protocol_ == ETHERTYPE_IPV4,
                    tunnel.gre_protocol_ == ETHERTYPE_IPV6);
}

}  // namespace daqiri::steering
