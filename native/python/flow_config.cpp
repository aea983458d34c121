// Flows and reorder plans of the configuration.
#include <pybind11/stl.h>

#include <string>
#include <utility>

#include "bindings.h"
#include "config/formats.h"
#include "daqiri/config.h"
#include "structs.h"

namespace daqiri::python {

namespace {

/// (low, high), or None for any port.
py::object ports(const PortRange& range) {
  return optional_value(!range.any(), std::pair(range.lo, range.hi));
}

py::object ipv4(std::uint32_t address) {
  return optional_value(address != 0, config::write_ipv4(address));
}

std::string action_word(FlowActionType type) {
  for (const config::Names names :
       {config::Names(config::RX_ACTIONS), config::Names(config::TX_ACTIONS)}) {
    for (const config::Name& name : names) {
      if (name.value == static_cast<int>(type)) return std::string(name.text);
    }
  }
  return std::to_string(static_cast<int>(type));
}

const char* match_word(FlowMatchType type) {
  switch (type) {
    case FlowMatchType::FLEX_ITEM:
      return "flex_item";
    case FlowMatchType::ECPRI:
      return "ecpri";
    case FlowMatchType::IPV4_UDP:
      break;
  }
  return "ipv4_udp";
}

void bind_matches(py::module_& m) {
  Struct<EcpriMatch>(m, "EcpriMatch", "What a flow matches of eCPRI messages; None: anything.")
      .value("msg_type",
             [](const EcpriMatch& e) { return optional_value(e.has_msg_type_, e.msg_type_); })
      .value("id", [](const EcpriMatch& e) { return optional_value(e.has_id_, e.id_); })
      .finish();
  const auto flex = [](auto FlexItemMatch::* at) {
    return [at](const FlowMatch& match) {
      return optional_value(match.type_ == FlowMatchType::FLEX_ITEM, match.flex_item_match_.*at);
    };
  };
  Struct<FlowMatch>(m, "FlowMatch",
                    "What a flow matches; None: anything. Ports are (low, high), inclusive.")
      .value("type", [](const FlowMatch& match) { return std::string(match_word(match.type_)); })
      .value("udp_src", [](const FlowMatch& match) { return ports(match.udp_src_); })
      .value("udp_dst", [](const FlowMatch& match) { return ports(match.udp_dst_); })
      .value("ipv4_len",
             [](const FlowMatch& match) {
               return optional_value(match.ipv4_len_ != 0, match.ipv4_len_);
             })
      .value("ipv4_src", [](const FlowMatch& match) { return ipv4(match.ipv4_src_); })
      .value("ipv4_dst", [](const FlowMatch& match) { return ipv4(match.ipv4_dst_); })
      .value("flex_item_id", flex(&FlexItemMatch::flex_item_id_))
      .value("val", flex(&FlexItemMatch::val_))
      .value("mask", flex(&FlexItemMatch::mask_))
      .value("ecpri",
             [](const FlowMatch& match) {
               return optional_value(match.type_ == FlowMatchType::ECPRI, match.ecpri_match_);
             })
      .finish();
}

void bind_actions(py::module_& m) {
  Struct<VlanConfig>(m, "VlanConfig", "The tag that vlan_push writes.")
      .member("vlan_id", &VlanConfig::vlan_id_)
      .member("pcp", &VlanConfig::pcp_)
      .member("dei", &VlanConfig::dei_)
      .member("ethertype", &VlanConfig::ethertype_)
      .finish();
  Struct<TunnelConfig>(m, "TunnelConfig", "A tunnel's outer headers; an address that is None: any.")
      .word("type", &TunnelConfig::type_, config::TUNNEL_TYPES)
      .value("outer_eth_src",
             [](const TunnelConfig& t) {
               return optional_value(!t.outer_eth_src_.empty(), t.outer_eth_src_);
             })
      .value("outer_eth_dst",
             [](const TunnelConfig& t) {
               return optional_value(!t.outer_eth_dst_.empty(), t.outer_eth_dst_);
             })
      .value("outer_ipv4_src", [](const TunnelConfig& t) { return ipv4(t.outer_ipv4_src_); })
      .value("outer_ipv4_dst", [](const TunnelConfig& t) { return ipv4(t.outer_ipv4_dst_); })
      .member("outer_ipv4_ttl", &TunnelConfig::outer_ipv4_ttl_)
      .member("outer_ipv4_tos", &TunnelConfig::outer_ipv4_tos_)
      .member("vni", &TunnelConfig::vni_)
      .member("outer_udp_src", &TunnelConfig::outer_udp_src_)
      .member("outer_udp_dst", &TunnelConfig::outer_udp_dst_)
      .member("gre_protocol", &TunnelConfig::gre_protocol_)
      .member("tni", &TunnelConfig::tni_)
      .member("flow_id", &TunnelConfig::flow_id_)
      .finish();
  Struct<FlowAction>(m, "FlowAction",
                     "What a flow does: type, and the values of that type (None: of another type).")
      .value("type", [](const FlowAction& a) { return action_word(a.type_); })
      .value("id",
             [](const FlowAction& a) {
               return optional_value(a.type_ == FlowActionType::QUEUE && a.ids_.empty(), a.id_);
             })
      .value("ids", [](const FlowAction& a) { return a.ids_; })
      .value("vlan",
             [](const FlowAction& a) {
               return optional_value(a.type_ == FlowActionType::VLAN_PUSH, a.vlan_);
             })
      .value("tunnel",
             [](const FlowAction& a) {
               const bool tunnel = a.type_ == FlowActionType::TUNNEL_ENCAP ||
                                   a.type_ == FlowActionType::TUNNEL_DECAP;
               return optional_value(tunnel, a.tunnel_);
             })
      .finish();
}

void bind_flows(py::module_& m) {
  Struct<FlowConfig>(m, "FlowConfig",
                     "A receive flow of the configuration; the last of its actions is a queue.")
      .value("name", [](const FlowConfig& f) { return f.name_; })
      .value("id", [](const FlowConfig& f) { return f.id_; })
      .value("match", [](const FlowConfig& f) { return f.match_; })
      .value("action", [](const FlowConfig& f) { return f.action_; })
      .value("actions", [](const FlowConfig& f) { return f.actions_; })
      .finish();
  Struct<TxFlowConfig>(m, "TxFlowConfig",
                       "A transmit flow of the configuration; match is None for all packets.")
      .member("name", &TxFlowConfig::name_)
      .member("id", &TxFlowConfig::id_)
      .value("match", [](const TxFlowConfig& f) { return optional_value(f.has_match_, f.match_); })
      .member("actions", &TxFlowConfig::actions_)
      .finish();
  Struct<FlexItemConfig>(m, "FlexItemConfig", "A flex item of the configuration.")
      .member("name", &FlexItemConfig::name_)
      .member("id", &FlexItemConfig::id_)
      .member("offset", &FlexItemConfig::offset_)
      .member("udp_dst_port", &FlexItemConfig::udp_dst_port_)
      .finish();
}

void bind_reorder(py::module_& m) {
  Struct<BitFieldConfig>(m, "BitFieldConfig", "Bits of a packet, most significant first.")
      .member("bit_offset", &BitFieldConfig::bit_offset_)
      .member("bit_width", &BitFieldConfig::bit_width_)
      .finish();
  Struct<DataTypesConfig>(m, "DataTypesConfig", "Conversion of samples.")
      .word("input_type", &DataTypesConfig::input_type_, config::INPUT_TYPES)
      .word("output_type", &DataTypesConfig::output_type_, config::OUTPUT_TYPES)
      .word("endianness", &DataTypesConfig::endianness_, config::ENDIANNESS)
      .finish();
  const auto by_batch = [](const ReorderConfig& r) {
    return r.method_ == ReorderMethod::SEQ_BATCH_NUMBER;
  };
  Struct<ReorderConfig>(m, "ReorderConfig",
                        "A reorder plan of the configuration; batch_number is None when counted.")
      .member("name", &ReorderConfig::name_)
      .word("reorder_type", &ReorderConfig::type_, config::REORDER_TYPES)
      .member("memory_region", &ReorderConfig::memory_region_)
      .member("payload_byte_offset", &ReorderConfig::payload_byte_offset_)
      .member("flow_ids", &ReorderConfig::flow_ids_)
      .value(
          "data_types",
          [](const ReorderConfig& r) { return optional_value(r.has_data_types_, r.data_types_); })
      .value("method",
             [by_batch](const ReorderConfig& r) {
               return std::string(by_batch(r) ? "seq_batch_number" : "seq_packets_per_batch");
             })
      .member("sequence_number", &ReorderConfig::sequence_number_)
      .value("batch_number",
             [by_batch](const ReorderConfig& r) {
               return optional_value(by_batch(r), r.batch_number_);
             })
      .member("packets_per_batch", &ReorderConfig::packets_per_batch_)
      .finish();
}

}  // namespace

void bind_flow_config(py::module_& m) {
  bind_matches(m);
  bind_actions(m);
  bind_flows(m);
  bind_reorder(m);
}

}  // namespace daqiri::python
