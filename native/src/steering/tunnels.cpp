#include "steering/tunnels.h"

#include <algorithm>
#include <utility>

namespace daqiri::steering {

namespace {

/// `wanted` all zeros: any.
bool same_mac(const MacAddress& wanted, const std::uint8_t* found) noexcept {
  return wanted == MacAddress{} || std::equal(wanted.begin(), wanted.end(), found);
}

}  // namespace

std::vector<FlowAction>::const_iterator tunnel_of(const FlowConfig& flow) {
  return std::ranges::find(flow.actions_, FlowType::TUNNEL_DECAP, &FlowAction::type_);
}

unsigned count_pops(std::vector<FlowAction>::const_iterator first,
                    std::vector<FlowAction>::const_iterator last) {
  return static_cast<unsigned>(std::count_if(
      first, last, [](const FlowAction& action) { return action.type_ == FlowType::VLAN_POP; }));
}

std::uint32_t address_of(const std::string& text) {
  return text.empty() ? 0 : ntohl(inet_addr(text.c_str()));
}

MacAddress mac_of(const std::string& text) {
  MacAddress mac{};
  if (!text.empty()) parse_mac(text, mac);
  return mac;
}

unsigned tags_of(const FlowConfig& flow) {
  const auto tunnel = tunnel_of(flow);
  const auto first = tunnel == flow.actions_.end() ? flow.actions_.begin() : tunnel;
  return count_pops(first, flow.actions_.end());
}

bool Tunnels::has(const FlowConfig& flow) { return tunnel_of(flow) != flow.actions_.end(); }

std::uint64_t Tunnels::identity_of(TunnelType type, unsigned tags, std::uint16_t port,
                                   std::uint32_t network) noexcept {
  return static_cast<std::uint64_t>(type) << 48U | std::uint64_t{tags} << 40U |
         std::uint64_t{port} << 24U | network;
}

Tunnels::Outer Tunnels::outer_of(const FlowConfig& flow) {
  const auto action = tunnel_of(flow);
  const TunnelConfig& tunnel = action->tunnel_;
  const unsigned tags = count_pops(flow.actions_.begin(), action);
  Outer outer{.eth_src = mac_of(tunnel.outer_eth_src_),
              .eth_dst = mac_of(tunnel.outer_eth_dst_),
              .ipv4_src = address_of(tunnel.outer_ipv4_src_),
              .ipv4_dst = address_of(tunnel.outer_ipv4_dst_)};
  switch (tunnel.type_) {
    case TunnelType::VXLAN:
      outer.identity = identity_of(tunnel.type_, tags, tunnel.outer_udp_dst_, tunnel.vni_);
      outer.udp_src = tunnel.outer_udp_src_;
      break;
    case TunnelType::NVGRE:
      outer.identity = identity_of(tunnel.type_, tags, ETHERTYPE_BRIDGED, tunnel.tni_);
      outer.flow_id = tunnel.flow_id_;
      break;
    case TunnelType::GRE:
    case TunnelType::NONE:
      outer.identity = identity_of(tunnel.type_, tags, tunnel.gre_protocol_, 0);
      break;
  }
  return outer;
}

std::optional<std::uint16_t> Tunnels::add(std::uint16_t position, const FlowConfig& flow) {
  const Outer outer = outer_of(flow);
  const auto by_outer = [](const Tunnel& tunnel) -> const Outer& { return tunnel.outer; };
  auto tunnel = std::ranges::find(tunnels_, outer, by_outer);
  if (tunnel == tunnels_.end())
    tunnel = tunnels_.insert(tunnel, {.outer = outer, .first = position});
  return tunnel->flows.add(position, flow.match_, tags_of(flow), {});
}

void Tunnels::finish() {
  for (Tunnel& tunnel : tunnels_) tunnel.flows.finish();
  std::ranges::sort(tunnels_, {}, [](const Tunnel& tunnel) { return tunnel.outer.identity; });
}

bool Tunnels::Outer::takes(const TunnelHeaders& headers, const std::uint8_t* frame) const noexcept {
  return (ipv4_src == 0 || ipv4_src == headers.ipv4_src) &&
         (ipv4_dst == 0 || ipv4_dst == headers.ipv4_dst) &&
         (udp_src == 0 || udp_src == headers.udp_src) &&
         (flow_id == 0 || flow_id == headers.flow_id) && same_mac(eth_dst, frame) &&
         same_mac(eth_src, frame + 6);
}

Tunnels::Found Tunnels::find(const PacketView& packet, std::uint16_t before) const noexcept {
  Found found;
  found.position = before;
  const std::uint8_t* frame = packet.bytes.data();
  const auto captured = static_cast<std::uint32_t>(packet.bytes.size());
  const TunnelHeaders headers = read_tunnel(frame, captured, packet.length);
  if (headers.type == TunnelType::NONE) return {};
  PacketKey key;
  if (headers.whole) {
    const Remains& inner = headers.inner;
    key = parse_frame(frame, std::min(captured, inner.end), inner.payload, inner.eth_type);
  }
  const auto look = [&](std::uint64_t identity) {
    auto of_identity = std::ranges::lower_bound(
        tunnels_, identity, {}, [](const Tunnel& tunnel) { return tunnel.outer.identity; });
    for (; of_identity != tunnels_.end() && of_identity->outer.identity == identity;
         ++of_identity) {
      const Tunnel& tunnel = *of_identity;
      if (tunnel.first >= found.position || !tunnel.outer.takes(headers, frame)) continue;
      const std::uint16_t position =
          headers.whole ? tunnel.flows.find({key, packet.bytes, packet.length}) : tunnel.first;
      found.position = std::min(found.position, position);
    }
  };
  const bool vxlan = headers.type == TunnelType::VXLAN;
  // NVGRE packets are also GRE packets with Ethernet frames.
  look(vxlan ? identity_of(TunnelType::VXLAN, headers.tags, headers.udp_dst, headers.network)
             : identity_of(TunnelType::GRE, headers.tags, headers.protocol, 0));
  if (headers.type == TunnelType::NVGRE)
    look(identity_of(TunnelType::NVGRE, headers.tags, headers.protocol, headers.network));
  if (found.position == before) return {};
  found.malformed = !headers.whole;
  found.key = key;
  found.remains = headers.inner;
  // Remove all tags: flows match only packets with exactly the tags that they remove.
  if (key.tags.vlans == 0) return found;
  found.remains.payload += key.tags.all * VLAN_TAG_SIZE;
  found.remains.eth_type = load_be16(frame + found.remains.payload - 2);
  return found;
}

}  // namespace daqiri::steering
