/// Flows: they match packets, change them and steer them to queues.
#pragma once

#include <arpa/inet.h>

#include <cstdint>
#include <string>
#include <vector>

#include "daqiri/language.h"

namespace daqiri {

/// \addtogroup flows
/// \{

/// Number of a flow; 0: none.
using FlowId = std::uint32_t;

/// Largest flow id in a configuration. Larger ids belong to flows that are added at run time.
inline constexpr FlowId MAX_STATIC_FLOW_ID = 0x7FFFFF;
/// Largest offset of a flex item, in bytes.
inline constexpr std::uint16_t MAX_FLEX_OFFSET = 60;

/// `type` of a match.
enum class FlowMatchType { IPV4_UDP, FLEX_ITEM, ECPRI };
/// `type` of an action.
enum class FlowType { QUEUE, VLAN_PUSH, VLAN_POP, TUNNEL_ENCAP, TUNNEL_DECAP };
/// `type` of a tunnel.
enum class TunnelType { NONE, VXLAN, GRE, NVGRE };

/// Inclusive range of ports; lo 0 and hi 0 match any port.
struct PortRange {
  std::uint16_t lo{0};
  std::uint16_t hi{0};

  constexpr PortRange() = default;
  /// One port; 0: any.
  constexpr PortRange(std::uint16_t port)  // NOLINT(google-explicit-constructor)
      : lo(port), hi(port) {}
  /// The ports from `first` to `last`, inclusive.
  constexpr PortRange(std::uint16_t first, std::uint16_t last) : lo(first), hi(last) {}

  /// Whether the range matches any port.
  [[nodiscard]] constexpr bool any() const noexcept { return hi == 0; }
  /// Whether the range matches `port`.
  [[nodiscard]] constexpr bool contains(std::uint16_t port) const noexcept {
    return any() || (port >= lo && port <= hi);
  }
  DAQIRI_EQUALITY(PortRange)
};

/// `match` on bits at a configured offset.
struct FlexItemMatch {
  int flex_item_id_{0};
  std::uint32_t val_{0};
  /// Bits to compare. If the file has no `mask`, all bits are compared.
  std::uint32_t mask_{0};
  DAQIRI_EQUALITY(FlexItemMatch)
};

/// `match` on the header of eCPRI messages.
struct EcpriMatch {
  std::uint8_t msg_type_{0};
  /// Whether msg_type_ is compared.
  bool match_msg_type_{false};
  /// pc_id or rtc_id, depending on the message type.
  std::uint16_t id_{0};
  /// Whether id_ is compared.
  bool match_id_{false};
  DAQIRI_EQUALITY(EcpriMatch)
};

/// `match` of a flow.
struct FlowMatch {
  FlowMatchType type_{FlowMatchType::IPV4_UDP};
  PortRange udp_src_;
  PortRange udp_dst_;
  /// IPv4 total length in bytes; 0 matches any.
  std::uint16_t ipv4_len_{0};
  /// Network byte order, as returned by inet_addr(3); INADDR_ANY matches any.
  in_addr_t ipv4_src_{INADDR_ANY};
  in_addr_t ipv4_dst_{INADDR_ANY};
  FlexItemMatch flex_item_match_;
  EcpriMatch ecpri_match_;
  DAQIRI_EQUALITY(FlowMatch)
};

/// VLAN tag that the action vlan_push writes.
struct VlanActionConfig {
  std::uint16_t vlan_id_{0};
  std::uint8_t pcp_{0};
  std::uint8_t dei_{0};
  std::uint16_t ethertype_{0x8100};
  DAQIRI_EQUALITY(VlanActionConfig)
};

/// Outer headers of a tunnel. Addresses are text; empty: not set.
struct TunnelConfig {
  TunnelType type_{TunnelType::NONE};
  std::string outer_eth_src_;
  std::string outer_eth_dst_;
  std::string outer_ipv4_src_;
  std::string outer_ipv4_dst_;
  std::uint8_t outer_ipv4_ttl_{64};
  std::uint8_t outer_ipv4_tos_{0};
  std::uint32_t vni_{0};
  std::uint16_t outer_udp_src_{0};
  std::uint16_t outer_udp_dst_{4789};
  std::uint16_t gre_protocol_{0x0800};
  std::uint32_t tni_{0};
  std::uint8_t flow_id_{0};
  DAQIRI_EQUALITY(TunnelConfig)
};

/// `action` of a flow, or one of its `actions`.
struct FlowAction {
  FlowType type_{FlowType::QUEUE};
  /// Queue id; used if ids_ is empty.
  std::uint16_t id_{0};
  /// Queue ids for RSS. After validation either empty or at least two.
  std::vector<std::uint16_t> ids_;
  VlanActionConfig vlan_;
  TunnelConfig tunnel_;
  DAQIRI_EQUALITY(FlowAction)
};

/// An entry of `rx.flows` or `tx.flows`.
struct FlowConfig {
  std::string name_;
  FlowId id_{0};
  /// The only action or, if actions_ is set, its last one.
  FlowAction action_;
  /// All actions, in order. Empty: action_ is the only action.
  std::vector<FlowAction> actions_;
  FlowMatch match_;
  DAQIRI_EQUALITY(FlowConfig)
};

/// A receive flow that is added while the engine runs.
struct FlowRuleConfig {
  std::string name_;
  /// Like FlowConfig::action_.
  FlowAction action_;
  std::vector<FlowAction> actions_;
  FlowMatch match_;
  DAQIRI_EQUALITY(FlowRuleConfig)
};

/// An entry of `rx.flex_items`.
struct FlexItemConfig {
  std::string name_;
  int id_{0};
  std::uint16_t offset_{0};
  std::uint16_t udp_dst_port_{0};
  DAQIRI_EQUALITY(FlexItemConfig)
};

/// Return "queue", "vlan_push", ...
std::string flow_type_to_string(FlowType type);
/// Inverse of `flow_type_to_string`; QUEUE for any other text.
FlowType flow_type_from_string(const std::string& text);
/// Return "vxlan", "gre" or "nvgre".
std::string tunnel_type_to_string(TunnelType type);
/// Inverse of `tunnel_type_to_string`; NONE for any other text.
TunnelType tunnel_type_from_string(const std::string& text);

/// Return the actions of a FlowConfig or FlowRuleConfig in order, from actions_ or action_.
template <class Flow>
std::vector<FlowAction> flow_actions(const Flow& flow) {
  return flow.actions_.empty() ? std::vector<FlowAction>{flow.action_} : flow.actions_;
}

/// \}

}  // namespace daqiri
