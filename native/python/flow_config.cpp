// Flows and reorder plans of the configuration.
#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <utility>

#include "bindings.h"
#include "config/formats.h"
#include "daqiri/config.h"
#include "reorder/plan.h"
#include "structs.h"

namespace daqiri::python {

namespace {

/// (low, high), or None for any port.
py::object ports(const PortRange& range) {
  return optional_value(!range.any(), std::pair(range.lo, range.hi));
}

py::object ipv4(in_addr_t address) {
  return optional_value(address != 0, config::write_ipv4(address));
}

std::string action_word(FlowType type) {
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
  Struct<EcpriMatch>(m, "EcpriMatch", "Match of a flow on eCPRI messages; None matches anything.")
      .value("msg_type",
             [](const EcpriMatch& e) { return optional_value(e.match_msg_type_, e.msg_type_); })
      .value("id", [](const EcpriMatch& e) { return optional_value(e.match_id_, e.id_); })
      .finish();
  const auto flex = [](auto FlexItemMatch::* at) {
    return [at](const FlowMatch& match) {
      return optional_value(match.type_ == FlowMatchType::FLEX_ITEM, match.flex_item_match_.*at);
    };
  };
  Struct<FlowMatch>(m, "FlowMatch",
                    "Match of a flow; None matches anything. Ports are (low, high), inclusive.")
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
  Struct<VlanActionConfig>(m, "VlanActionConfig", "The tag that vlan_push writes.")
      .member("vlan_id", &VlanActionConfig::vlan_id_)
      .member("pcp", &VlanActionConfig::pcp_)
      .member("dei", &VlanActionConfig::dei_)
      .member("ethertype", &VlanActionConfig::ethertype_)
      .finish();
  Struct<TunnelConfig>(m, "TunnelConfig",
                       "Outer headers of a tunnel; an address of None matches any.")
      .word("type", &TunnelConfig::type_, config::TUNNEL_TYPES)
      .value("outer_eth_src", [](const TunnelConfig& t) { return given_text(t.outer_eth_src_); })
      .value("outer_eth_dst", [](const TunnelConfig& t) { return given_text(t.outer_eth_dst_); })
      .value("outer_ipv4_src", [](const TunnelConfig& t) { return given_text(t.outer_ipv4_src_); })
      .value("outer_ipv4_dst", [](const TunnelConfig& t) { return given_text(t.outer_ipv4_dst_); })
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
                     "Action of a flow: type, and the values of that type (None for other types).")
      .value("type", [](const FlowAction& a) { return action_word(a.type_); })
      .value("id",
             [](const FlowAction& a) {
               return optional_value(a.type_ == FlowType::QUEUE && a.ids_.empty(), a.id_);
             })
      .value("ids", [](const FlowAction& a) { return a.ids_; })
      .value("vlan",
             [](const FlowAction& a) {
               return optional_value(a.type_ == FlowType::VLAN_PUSH, a.vlan_);
             })
      .value("tunnel",
             [](const FlowAction& a) {
               const bool tunnel =
                   a.type_ == FlowType::TUNNEL_ENCAP || a.type_ == FlowType::TUNNEL_DECAP;
               return optional_value(tunnel, a.tunnel_);
             })
      .finish();
}

void bind_flows(py::module_& m) {
  Struct<FlowConfig>(m, "FlowConfig", R"doc(A flow of the configuration.

The last action of a receive flow is a queue. A transmit flow whose match has only defaults matches
all packets.)doc")
      .member("name", &FlowConfig::name_)
      .member("id", &FlowConfig::id_)
      .member("match", &FlowConfig::match_)
      .member("action", &FlowConfig::action_)
      .member("actions", &FlowConfig::actions_)
      .finish();
  Struct<FlexItemConfig>(m, "FlexItemConfig", "A flex item of the configuration.")
      .member("name", &FlexItemConfig::name_)
      .member("id", &FlexItemConfig::id_)
      .member("offset", &FlexItemConfig::offset_)
      .member("udp_dst_port", &FlexItemConfig::udp_dst_port_)
      .finish();
}

void bind_reorder(py::module_& m) {
  Struct<ReorderBitFieldConfig>(m, "ReorderBitFieldConfig",
                                "Bits of a packet, most significant first.")
      .member("bit_offset", &ReorderBitFieldConfig::bit_offset_)
      .member("bit_width", &ReorderBitFieldConfig::bit_width_)
      .word("byte_order", &ReorderBitFieldConfig::byte_order_, config::BYTE_ORDERS)
      .word("base", &ReorderBitFieldConfig::base_, config::BASES)
      .member("step", &ReorderBitFieldConfig::step_)
      .member("unit", &ReorderBitFieldConfig::unit_)
      .finish();
  Struct<ReorderConditionConfig>(
      m, "ReorderConditionConfig",
      "A condition on a number in packets: (number & mask) is in a range.")
      .member("field", &ReorderConditionConfig::field_)
      .member("mask", &ReorderConditionConfig::mask_)
      .member("at_least", &ReorderConditionConfig::at_least_)
      .member("at_most", &ReorderConditionConfig::at_most_)
      .finish();
  Struct<ReorderColumnConfig>(m, "ReorderColumnConfig",
                              "Numbers in packets that go with their frame.")
      .member("name", &ReorderColumnConfig::name_)
      .member("field", &ReorderColumnConfig::field_)
      .word("source", &ReorderColumnConfig::from_, config::COLUMN_SOURCES)
      .finish();
  Struct<ReorderDataTypesConfig>(m, "ReorderDataTypesConfig", "Conversion of samples.")
      .word("input_type", &ReorderDataTypesConfig::input_type_, config::INPUT_TYPES)
      .word("output_type", &ReorderDataTypesConfig::output_type_, config::OUTPUT_TYPES)
      .word("endianness", &ReorderDataTypesConfig::endianness_, config::ENDIANNESS)
      .word("packing", &ReorderDataTypesConfig::packing_, config::PACKINGS)
      .finish();
  Struct<ReorderPositionConfig>(m, "ReorderPositionConfig", "Where a module is in the image.")
      .member("origin", &ReorderPositionConfig::origin_)
      .word("flip", &ReorderPositionConfig::flip_, config::FLIPS)
      .member("rotate", &ReorderPositionConfig::rotate_)
      .finish();
  Struct<ReorderModulesConfig>(m, "ReorderModulesConfig",
                               "How payloads form an image; lists have rows and columns.")
      .member("shape", &ReorderModulesConfig::shape_)
      .member("tile", &ReorderModulesConfig::tile_)
      .member("chip", &ReorderModulesConfig::chip_)
      .member("chip_gap", &ReorderModulesConfig::chip_gap_)
      .member("positions", &ReorderModulesConfig::positions_)
      .finish();
  Struct<ReorderFrameConfig>(m, "ReorderFrameConfig", "Shape and type of an aggregate.")
      .member("shape", &ReorderFrameConfig::shape_)
      .member("dtype", &ReorderFrameConfig::dtype_)
      .value("modules",
             [](const ReorderFrameConfig& f) {
               return optional_value(!f.modules_.shape_.empty(), f.modules_);
             })
      .finish();
  using Method = ReorderMethod;
  using Field = std::optional<ReorderBitFieldConfig>;
  const auto batch_number = [](const ReorderConfig& r) -> Field {
    if (r.method_ == Method::SEQ_BATCH_NUMBER) return r.seq_batch_number_.batch_number_;
    if (r.method_ == Method::BATCH_PACKET_NUMBER) return r.batch_packet_number_.batch_number_;
    if (r.method_ == Method::BATCH_BYTE_OFFSET) return r.batch_byte_offset_.batch_number_;
    return {};
  };
  const auto sequence_number = [](const ReorderConfig& r) -> Field {
    if (r.method_ == Method::SEQ_BATCH_NUMBER) return r.seq_batch_number_.sequence_number_;
    if (r.method_ == Method::SEQ_PACKETS_PER_BATCH)
      return r.seq_packets_per_batch_.sequence_number_;
    return {};
  };
  Struct<ReorderConfig>(
      m, "ReorderConfig",
      "A reorder plan of the configuration; values that its method does not use are None.")
      .member("name", &ReorderConfig::name_)
      .member("reorder_type", &ReorderConfig::reorder_type_)
      .member("memory_region", &ReorderConfig::memory_region_)
      .member("payload_byte_offset", &ReorderConfig::payload_byte_offset_)
      .word("payload_base", &ReorderConfig::payload_base_, config::BASES)
      .value("payload_offset_field",
             [](const ReorderConfig& r) {
               return optional_value(r.payload_offset_field_.bit_width_ != 0,
                                     r.payload_offset_field_);
             })
      .member("payload_bytes", &ReorderConfig::payload_bytes_)
      .member("conditions", &ReorderConfig::conditions_)
      .member("columns", &ReorderConfig::columns_)
      .member("flow_ids", &ReorderConfig::flow_ids_)
      .member("flows", &ReorderConfig::flows_)
      .member("flow_stride", &ReorderConfig::flow_stride_)
      .member("cpu_cores", &ReorderConfig::cpu_cores_)
      .member("window", &ReorderConfig::window_)
      .member("timeout_us", &ReorderConfig::timeout_us_)
      .member("fill", &ReorderConfig::fill_)
      .value("data_types",
             [](const ReorderConfig& r) {
               return optional_value(r.data_types_ != ReorderDataTypesConfig{}, r.data_types_);
             })
      .value("frame",
             [](const ReorderConfig& r) {
               return optional_value(r.frame_ != ReorderFrameConfig{}, r.frame_);
             })
      .value("method",
             [](const ReorderConfig& r) { return std::string(config::key_of(r.method_)); })
      .value("sequence_number", sequence_number)
      .value("batch_number", batch_number)
      .value("packet_number",
             [](const ReorderConfig& r) {
               return optional_value(r.method_ == Method::BATCH_PACKET_NUMBER,
                                     r.batch_packet_number_.packet_number_);
             })
      .member("first_packet", &ReorderConfig::first_packet_)
      .value("running",
             [](const ReorderConfig& r) {
               return optional_value(r.method_ == Method::BATCH_PACKET_NUMBER,
                                     r.batch_packet_number_.running_);
             })
      .value("byte_offset",
             [](const ReorderConfig& r) {
               return optional_value(r.method_ == Method::BATCH_BYTE_OFFSET,
                                     r.batch_byte_offset_.byte_offset_);
             })
      .value("batch_bytes",
             [](const ReorderConfig& r) {
               return optional_value(r.method_ == Method::BATCH_BYTE_OFFSET,
                                     r.batch_byte_offset_.batch_bytes_);
             })
      .value("packets_per_batch",
             [](const ReorderConfig& r) {
               return optional_value(r.method_ != Method::BATCH_BYTE_OFFSET, reorder::slots_of(r));
             })
      .value("modes",
             [](const ReorderConfig& r) -> py::object {
               py::dict modes;
               for (const ReorderModeConfig& mode : r.modes_)
                 modes[py::str(mode.name_)] = py::cast(mode.plan_);
               return modes;
             })
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
