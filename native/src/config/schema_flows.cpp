// Flows: what they match and what they do.
#include "config/schema.h"

namespace daqiri::config {
namespace {

enum class Direction { RX, TX };

void walk_queue_action(Fields& fields, FlowAction& action) {
  const bool several = fields.given("ids");
  const bool spread = !action.ids_.empty();
  if (!fields.writing() || !spread) fields.number({"id", !several}, action.id_, WORD);
  if (!fields.writing() || spread) fields.numbers(optional("ids"), action.ids_, WORD);
  if (!fields.reading()) return;
  if (several && fields.given("id"))
    fields.problem("ids", "stands beside id; accepts one of the two");
  if (several && action.ids_.empty())
    fields.problem("ids", "found an empty list; accepts a list of queue ids");
  if (!action.ids_.empty()) action.id_ = action.ids_.front();
  if (action.ids_.size() == 1) action.ids_.clear();
}

void walk_vlan(Fields& fields, VlanConfig& vlan) {
  fields.number(required("vlan_id"), vlan.vlan_id_, {0, 4095});
  fields.number(optional("pcp"), vlan.pcp_, {0, 7});
  fields.number(optional("dei"), vlan.dei_, {0, 1});
  fields.number(optional("ethertype"), vlan.ethertype_, WORD);
}

/// To encapsulate, the outer addresses must be known; to decapsulate, those left out match any.
void walk_tunnel(Fields& fields, TunnelConfig& tunnel, bool encapsulate) {
  fields.choice(required("type"), tunnel.type_, TUNNEL_TYPES);
  if (fields.reading() && (fields.bad("type") || !fields.given("type")))
    return fields.ignore_rest();
  fields.formed({"outer_eth_src", encapsulate}, tunnel.outer_eth_src_, MAC);
  fields.formed({"outer_eth_dst", encapsulate}, tunnel.outer_eth_dst_, MAC);
  fields.formed({"outer_ipv4_src", encapsulate}, tunnel.outer_ipv4_src_, IPV4);
  fields.formed({"outer_ipv4_dst", encapsulate}, tunnel.outer_ipv4_dst_, IPV4);
  fields.number(optional("outer_ipv4_ttl"), tunnel.outer_ipv4_ttl_, {1, 255});
  fields.number(optional("outer_ipv4_tos"), tunnel.outer_ipv4_tos_, BYTE);
  if (fields.listing() || tunnel.type_ == TunnelType::VXLAN) {
    fields.number(required("vni"), tunnel.vni_, {0, 0xFFFFFF});
    fields.number(optional("outer_udp_src"), tunnel.outer_udp_src_, WORD);
    fields.number(optional("outer_udp_dst"), tunnel.outer_udp_dst_, PORT);
  }
  if (fields.listing() || tunnel.type_ == TunnelType::GRE) {
    fields.number(optional("gre_protocol"), tunnel.gre_protocol_, WORD);
  }
  if (fields.listing() || tunnel.type_ == TunnelType::NVGRE) {
    fields.number(required("tni"), tunnel.tni_, {0, 0xFFFFFF});
    fields.number(optional("flow_id"), tunnel.flow_id_, BYTE);
  }
}

/// `accepted`: the types that may stand here.
void walk_action(Fields& fields, FlowAction& action, Direction direction, Names accepted) {
  const bool rx = direction == Direction::RX;
  fields.choice(required("type"), action.type_, fields.writing() ? Names(ACTIONS) : accepted);
  if (fields.reading() && (fields.bad("type") || !fields.given("type")))
    return fields.ignore_rest();
  const FlowActionType tunnel = rx ? FlowActionType::TUNNEL_DECAP : FlowActionType::TUNNEL_ENCAP;
  if (rx && (fields.listing() || action.type_ == FlowActionType::QUEUE))
    walk_queue_action(fields, action);
  if (!rx && (fields.listing() || action.type_ == FlowActionType::VLAN_PUSH))
    walk_vlan(fields, action.vlan_);
  if ((fields.listing() && accepted.size() > 1) || action.type_ == tunnel) {
    fields.map(required("tunnel"), [&] { walk_tunnel(fields, action.tunnel_, !rx); });
  }
}

/// `action` holds one, `actions` a list. A single action of a receive flow is its queue.
void walk_actions(Fields& fields, std::vector<FlowAction>& actions, Direction direction) {
  const Names all = direction == Direction::RX ? RX_ACTIONS : TX_ACTIONS;
  const Names alone = direction == Direction::RX ? all.first(1) : all;
  const bool several = fields.given("actions");
  if (several && fields.given("action"))
    fields.problem("action", "stands beside actions; accepts one of the two");
  const bool write_short = actions.size() == 1 && actions.front().type_ == FlowActionType::QUEUE;
  FlowAction single = write_short ? actions.front() : FlowAction{};
  bool has_single = write_short;
  if (!fields.writing() || write_short) {
    fields.map({"action", !several}, has_single,
               [&] { walk_action(fields, single, direction, alone); });
  }
  if (!fields.writing() || !write_short) {
    fields.list(optional("actions"), actions,
                [&](FlowAction& action) { walk_action(fields, action, direction, all); });
  }
  if (fields.reading() && has_single && !several) actions = {single};
}

void walk_ecpri(Fields& fields, EcpriMatch& match) {
  if (!fields.writing() || match.has_msg_type_)
    fields.number(optional("msg_type"), match.msg_type_, BYTE);
  // The two names are one field; the message type says which it is.
  constexpr std::uint8_t REAL_TIME_CONTROL = 2;
  const bool control = match.msg_type_ == REAL_TIME_CONTROL;
  if (!fields.writing() || (match.has_id_ && !control))
    fields.number(optional("pc_id"), match.id_, WORD);
  if (!fields.writing() || (match.has_id_ && control))
    fields.number(optional("rtc_id"), match.id_, WORD);
  if (!fields.reading()) return;
  match.has_msg_type_ = fields.given("msg_type");
  match.has_id_ = fields.given("pc_id") || fields.given("rtc_id");
  if (fields.given("pc_id") && fields.given("rtc_id")) {
    fields.problem(
        "rtc_id", "stands beside pc_id; accepts one of the two, they are one field of the message");
  }
  if (match.has_id_ && !match.has_msg_type_) {
    fields.problem(fields.given("pc_id") ? "pc_id" : "rtc_id",
                   "has no msg_type beside it, which says where the id stands in the message; "
                   "accepts msg_type as well");
  }
}

/// A flow matches by UDP/IPv4, by a flex item or by eCPRI; keys of another class beside it are
/// errors.
void check_match_class(Fields& fields, FlowMatch& match, bool flex) {
  const bool ecpri = fields.given("ecpri");
  if (!ecpri && !flex) return;
  match.type_ = ecpri ? FlowMatchType::ECPRI : FlowMatchType::FLEX_ITEM;
  const auto refuse = [&](std::initializer_list<std::string_view> keys, const std::string& beside) {
    for (const std::string_view key : keys) {
      if (fields.given(key))
        fields.problem(key, "stands beside " + beside + "; accepts one kind of match in a flow");
    }
  };
  refuse({"udp_src", "udp_dst", "ipv4_len", "ipv4_src", "ipv4_dst"},
         ecpri ? "ecpri" : "flex_item_id");
  if (flex && ecpri) refuse({"flex_item_id", "val", "mask"}, "ecpri");
}

/// Flex items belong to the receive side: elsewhere their keys are unknown.
void walk_match(Fields& fields, FlowMatch& match, Direction direction) {
  fields.formed(optional("udp_src"), match.udp_src_, PORTS);
  fields.formed(optional("udp_dst"), match.udp_dst_, PORTS);
  if (!fields.writing() || match.ipv4_len_ != 0)
    fields.number(optional("ipv4_len"), match.ipv4_len_, WORD);
  fields.formed(optional("ipv4_src"), match.ipv4_src_, IPV4);
  fields.formed(optional("ipv4_dst"), match.ipv4_dst_, IPV4);
  FlexItemMatch& flex = match.flex_item_match_;
  const bool flex_given =
      direction == Direction::RX &&
      (fields.given("flex_item_id") || fields.given("val") || fields.given("mask"));
  const bool by_flex =
      match.type_ == FlowMatchType::FLEX_ITEM || (flex_given && !fields.given("ecpri"));
  const bool write_flex = by_flex || flex != FlexItemMatch{};
  if (fields.writing() ? write_flex : direction == Direction::RX) {
    fields.number({"flex_item_id", by_flex}, flex.flex_item_id_, {0, INT32_MAX});
    fields.number({"val", by_flex}, flex.val_, {0, UINT32_MAX});
    fields.number(optional("mask"), flex.mask_, {0, UINT32_MAX});
  }
  bool ecpri = match.type_ == FlowMatchType::ECPRI || match.ecpri_match_ != EcpriMatch{};
  fields.map(optional("ecpri"), ecpri, [&] { walk_ecpri(fields, match.ecpri_match_); });
  if (fields.reading()) check_match_class(fields, match, flex_given);
}

template <class Flow>
void walk_flow(Fields& fields, Flow& flow, std::vector<FlowAction>& actions, Direction direction) {
  fields.text(required("name"), flow.name_);
  fields.number(required("id"), flow.id_, {0, MAX_STATIC_FLOW_ID});
  walk_actions(fields, actions, direction);
  bool has_match = flow.match_ != FlowMatch{};
  fields.map(optional("match"), has_match, [&] { walk_match(fields, flow.match_, direction); });
}

}  // namespace

void walk_rx_flow(Fields& fields, FlowConfig& flow) {
  std::vector<FlowAction> actions = flow.actions_;
  if (actions.empty() && fields.writing()) actions = {flow.action_};
  walk_flow(fields, flow, actions, Direction::RX);
  if (!fields.reading()) return;
  flow.actions_ = actions;
  if (!actions.empty()) flow.action_ = actions.back();
}

void walk_tx_flow(Fields& fields, TxFlowConfig& flow) {
  walk_flow(fields, flow, flow.actions_, Direction::TX);
  if (fields.reading()) flow.has_match_ = flow.match_ != FlowMatch{};
}

}  // namespace daqiri::config
