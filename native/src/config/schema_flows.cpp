// Keys of flows, flex items and reorder configs.
#include "config/schema.h"

namespace daqiri::config {
namespace {

void walk_queue_action(Fields& fields, FlowAction& action) {
  const bool several = fields.given("ids");
  const bool spread = !action.ids_.empty();
  fields.number({"id", !several, !spread}, action.id_, WORD);
  fields.numbers({"ids", false, spread}, action.ids_, WORD);
  if (!fields.reading()) return;
  if (several && fields.given("id"))
    fields.problem("ids", "found together with id; accepts one of the two");
  if (several && action.ids_.empty())
    fields.problem("ids", "found an empty list; accepts a list of queue ids");
  if (!action.ids_.empty()) action.id_ = action.ids_.front();
  if (action.ids_.size() == 1) action.ids_.clear();
}

void walk_vlan(Fields& fields, VlanActionConfig& vlan) {
  fields.number(required("vlan_id"), vlan.vlan_id_, {0, 4095});
  fields.number(optional("pcp"), vlan.pcp_, {0, 7});
  fields.number(optional("dei"), vlan.dei_, {0, 1});
  fields.number(optional("ethertype"), vlan.ethertype_, ETHERTYPE);
}

/// The keys of the tag are next to `type`, or in a map `vlan`.
void walk_vlan_push(Fields& fields, VlanActionConfig& vlan) {
  if (!fields.given("vlan")) return walk_vlan(fields, vlan);
  fields.map(required("vlan"), vlan, walk_vlan);
  for (const std::string_view key : {"vlan_id", "pcp", "dei", "ethertype"}) {
    if (fields.given(key))
      fields.refused(key, "found together with vlan, which contains it; keep one");
  }
}

/// Encapsulation requires outer addresses; for decapsulation, omitted ones match any. `outer`:
/// tunnel_type, if it is next to the map; NONE: its value is wrong.
void walk_tunnel(Fields& fields, TunnelConfig& tunnel, bool encapsulate,
                 std::optional<TunnelType> outer) {
  tunnel.type_ = outer.value_or(tunnel.type_);
  fields.choice({"type", !outer}, tunnel.type_, TUNNEL_TYPES);
  if (outer && *outer != TunnelType::NONE && tunnel.type_ != *outer)
    fields.problem(
        "type", concat("found ", quoted(text_of(TUNNEL_TYPES, tunnel.type_)),
                       ", while tunnel_type is '", text_of(TUNNEL_TYPES, *outer), "'; keep one"));
  if (fields.reading() && (fields.bad("type") || tunnel.type_ == TunnelType::NONE))
    return fields.ignore_rest();
  fields.formed({"outer_eth_src", encapsulate}, tunnel.outer_eth_src_, mac_form);
  fields.formed({"outer_eth_dst", encapsulate}, tunnel.outer_eth_dst_, mac_form);
  fields.formed({"outer_ipv4_src", encapsulate}, tunnel.outer_ipv4_src_, ipv4_text_form);
  fields.formed({"outer_ipv4_dst", encapsulate}, tunnel.outer_ipv4_dst_, ipv4_text_form);
  fields.number(optional("outer_ipv4_ttl"), tunnel.outer_ipv4_ttl_, {1, 255});
  fields.number(optional("outer_ipv4_tos"), tunnel.outer_ipv4_tos_, BYTE);
  if (fields.listing() || tunnel.type_ == TunnelType::VXLAN) {
    fields.number(required("vni"), tunnel.vni_, {0, 0xFFFFFF});
    fields.number(optional("outer_udp_src"), tunnel.outer_udp_src_, WORD);
    fields.number(optional("outer_udp_dst"), tunnel.outer_udp_dst_, PORT);
  }
  if (fields.listing() || tunnel.type_ == TunnelType::GRE)
    fields.number(optional("gre_protocol"), tunnel.gre_protocol_, ETHERTYPE);
  if (fields.listing() || tunnel.type_ == TunnelType::NVGRE) {
    fields.number(required("tni"), tunnel.tni_, {0, 0xFFFFFF});
    fields.number(optional("flow_id"), tunnel.flow_id_, BYTE);
  }
}

/// `accepted`: the types that are allowed here.
void walk_action(Fields& fields, FlowAction& action, bool rx, Names accepted) {
  fields.choice(required("type"), action.type_, fields.writing() ? Names(ACTIONS) : accepted);
  if (fields.reading() && (fields.bad("type") || !fields.given("type")))
    return fields.ignore_rest();
  const FlowType tunnel = rx ? FlowType::TUNNEL_DECAP : FlowType::TUNNEL_ENCAP;
  if (rx && (fields.listing() || action.type_ == FlowType::QUEUE))
    walk_queue_action(fields, action);
  if (!rx && (fields.listing() || action.type_ == FlowType::VLAN_PUSH))
    walk_vlan_push(fields, action.vlan_);
  if ((fields.listing() && accepted.size() > 1) || action.type_ == tunnel) {
    std::optional<TunnelType> outer;
    if (fields.given("tunnel_type"))
      fields.choice(required("tunnel_type"), outer.emplace(TunnelType::NONE), TUNNEL_TYPES);
    fields.map(required("tunnel"),
               [&](Fields& inner) { walk_tunnel(inner, action.tunnel_, !rx, outer); });
  }
}

/// `action` contains one action, `actions` a list. A single action of a receive flow must be a
/// queue.
void walk_actions(Fields& fields, std::vector<FlowAction>& actions, bool rx) {
  const Names all = rx ? RX_ACTIONS : TX_ACTIONS;
  const Names alone = rx ? all.first(1) : all;
  const bool several = fields.given("actions");
  if (several && fields.given("action"))
    fields.problem("action", "found together with actions; accepts one of the two");
  const bool write_short = actions.size() == 1 && actions.front().type_ == FlowType::QUEUE;
  FlowAction single = write_short ? actions.front() : FlowAction{};
  const bool has_single = fields.map({"action", !several, write_short},
                                     [&](Fields& inner) { walk_action(inner, single, rx, alone); });
  fields.list({"actions", false, !write_short}, actions,
              [&](Fields& inner, FlowAction& action) { walk_action(inner, action, rx, all); });
  if (fields.reading() && has_single && !several) actions = {single};
}

void walk_ecpri(Fields& fields, EcpriMatch& match) {
  fields.number({"msg_type", false, match.match_msg_type_}, match.msg_type_, BYTE);
  // Two names of the same field, selected by the message type.
  constexpr std::uint8_t REAL_TIME_CONTROL = 2;
  const bool control = match.msg_type_ == REAL_TIME_CONTROL;
  fields.number({"pc_id", false, match.match_id_ && !control}, match.id_, WORD);
  fields.number({"rtc_id", false, match.match_id_ && control}, match.id_, WORD);
  if (!fields.reading()) return;
  match.match_msg_type_ = fields.given("msg_type");
  match.match_id_ = fields.given("pc_id") || fields.given("rtc_id");
  if (fields.given("pc_id") && fields.given("rtc_id"))
    fields.problem("rtc_id",
                   "found together with pc_id; accepts one of the two, which are the same field of "
                   "the message");
  if (match.match_id_ && !match.match_msg_type_)
    fields.problem(fields.given("pc_id") ? "pc_id" : "rtc_id",
                   "found without msg_type, which determines the position of the id in the "
                   "message; accepts both");
}

/// A flow matches by UDP, by a flex item or by eCPRI; additional keys of another kind are
/// errors.
void check_match_class(Fields& fields, FlowMatch& match, bool flex) {
  const bool ecpri = fields.given("ecpri");
  if (!ecpri && !flex) return;
  match.type_ = ecpri ? FlowMatchType::ECPRI : FlowMatchType::FLEX_ITEM;
  const auto refuse = [&](std::initializer_list<std::string_view> keys, const std::string& beside) {
    for (const std::string_view key : keys) {
      if (fields.given(key))
        fields.problem(key,
                       "found together with " + beside + "; accepts one kind of match in a flow");
    }
  };
  refuse({"udp_src", "udp_dst", "ipv4_len", "ipv4_src", "ipv4_dst"},
         ecpri ? "ecpri" : "flex_item_id");
  if (flex && ecpri) refuse({"flex_item_id", "val", "mask"}, "ecpri");
}

/// Flex items exist only on the receive side: elsewhere their keys are unknown.
void walk_match(Fields& fields, FlowMatch& match, bool rx) {
  fields.formed(optional("udp_src"), match.udp_src_, ports_form);
  fields.formed(optional("udp_dst"), match.udp_dst_, ports_form);
  fields.number({"ipv4_len", false, match.ipv4_len_ != 0}, match.ipv4_len_, WORD);
  fields.formed(optional("ipv4_src"), match.ipv4_src_, ipv4_form);
  fields.formed(optional("ipv4_dst"), match.ipv4_dst_, ipv4_form);
  FlexItemMatch& flex = match.flex_item_match_;
  const bool flex_given =
      rx && (fields.given("flex_item_id") || fields.given("val") || fields.given("mask"));
  const bool by_flex =
      match.type_ == FlowMatchType::FLEX_ITEM || (flex_given && !fields.given("ecpri"));
  const bool write_flex = by_flex || flex != FlexItemMatch{};
  if (!fields.writing() && (flex_given || fields.listing())) flex.mask_ = UINT32_MAX;
  if (fields.writing() ? write_flex : rx) {
    fields.number({"flex_item_id", by_flex}, flex.flex_item_id_, {0, INT32_MAX});
    fields.number({"val", by_flex}, flex.val_, {0, UINT32_MAX});
    fields.number(optional("mask"), flex.mask_, {0, UINT32_MAX});
  }
  fields.map(optional("ecpri"), match.ecpri_match_, walk_ecpri,
             match.type_ == FlowMatchType::ECPRI);
  if (fields.reading()) check_match_class(fields, match, flex_given);
}

void walk_bit_field(Fields& fields, ReorderBitFieldConfig& field) {
  fields.number(required("bit_offset"), field.bit_offset_, {0, UINT32_MAX, "bits"});
  fields.number(required("bit_width"), field.bit_width_, {1, 64, "bits"});
  const bool little = field.byte_order_ != ReorderByteOrder::BIG;
  fields.choice({"byte_order", false, little}, field.byte_order_, BYTE_ORDERS);
  const bool payload = field.base_ != ReorderBase::PACKET;
  fields.choice({"base", false, payload}, field.base_, BASES);
}

constexpr Range UNIT{1, UINT32_MAX, "bytes"};

void walk_batch_number(Fields& fields, ReorderBitFieldConfig& field) {
  walk_bit_field(fields, field);
  fields.formed(optional("step"), field.step_, batch_step_form);
}

void walk_packet_number(Fields& fields, ReorderBitFieldConfig& field) {
  walk_bit_field(fields, field);
  fields.number({"step", false, field.step_ != 1}, field.step_, {1, UINT32_MAX});
}

void walk_byte_offset(Fields& fields, ReorderBitFieldConfig& field) {
  walk_bit_field(fields, field);
  fields.number({"unit", false, field.unit_ != 1}, field.unit_, UNIT);
}

void walk_condition(Fields& fields, ReorderConditionConfig& condition) {
  walk_bit_field(fields, condition.field_);
  constexpr std::uint64_t ALL = UINT64_MAX;
  const bool one = condition.at_least_ == condition.at_most_;
  std::uint64_t equal = condition.at_least_;
  const auto number = [&](std::string_view key, std::uint64_t& value, bool written) {
    if (!fields.writing() || written) fields.formed(optional(key), value, natural_form);
  };
  number("mask", condition.mask_, condition.mask_ != ALL);
  number("equal", equal, one);
  number("at_least", condition.at_least_,
         !one && (condition.at_least_ != 0 || condition.at_most_ == ALL));
  number("at_most", condition.at_most_, !one && condition.at_most_ != ALL);
  if (!fields.reading()) return;
  const bool range = fields.given("at_least") || fields.given("at_most");
  if (fields.given("equal") == range)
    fields.problem("", concat("found ", range ? "equal beside at_least or at_most" : "no value",
                              "; accepts equal, or at_least and at_most"));
  if (fields.given("equal")) condition.at_least_ = condition.at_most_ = equal;
}

void walk_column(Fields& fields, ReorderColumnConfig& column) {
  walk_bit_field(fields, column.field_);
  const bool sum = column.from_ != ReorderColumnSource::FIRST;
  fields.choice({"from", false, sum}, column.from_, COLUMN_SOURCES);
}

constexpr Range PACKETS{1, UINT32_MAX, "packets"};

void walk_method(Fields& fields, ReorderConfig& reorder) {
  int given = 0;
  const auto method = [&](std::string_view key, ReorderMethod is, const Fields::Body& body) {
    if (!fields.map({key, false, reorder.method_ == is}, body)) return;
    ++given;
    if (fields.reading()) reorder.method_ = is;
  };
  const auto first = [&](Fields& inner) {
    inner.number_each({"first_packet", false, !reorder.first_packet_.empty()},
                      reorder.first_packet_, {0, UINT32_MAX});
    if (inner.given("first_packet") && !inner.bad("first_packet") && reorder.first_packet_.empty())
      inner.problem("first_packet",
                    "found an empty list; accepts one number, or one for each flow");
  };
  method("seq_batch_number", ReorderMethod::SEQ_BATCH_NUMBER, [&](Fields& inner) {
    ReorderSeqBatchNumberConfig& keys = reorder.seq_batch_number_;
    inner.map(required("sequence_number"), keys.sequence_number_, walk_packet_number);
    inner.map(required("batch_number"), keys.batch_number_, walk_batch_number);
    first(inner);
  });
  method("seq_packets_per_batch", ReorderMethod::SEQ_PACKETS_PER_BATCH, [&](Fields& inner) {
    ReorderSeqPacketsPerBatchConfig& keys = reorder.seq_packets_per_batch_;
    inner.map(required("sequence_number"), keys.sequence_number_, walk_packet_number);
    inner.number(required("packets_per_batch"), keys.packets_per_batch_, PACKETS);
    first(inner);
  });
  method("batch_packet_number", ReorderMethod::BATCH_PACKET_NUMBER, [&](Fields& inner) {
    ReorderBatchPacketNumberConfig& keys = reorder.batch_packet_number_;
    inner.map(required("batch_number"), keys.batch_number_, walk_batch_number);
    inner.map(required("packet_number"), keys.packet_number_, walk_packet_number);
    inner.number(required("packets_per_batch"), keys.packets_per_batch_, PACKETS);
    first(inner);
    inner.flag({"running", false, keys.running_}, keys.running_);
  });
  method("batch_byte_offset", ReorderMethod::BATCH_BYTE_OFFSET, [&](Fields& inner) {
    ReorderBatchByteOffsetConfig& keys = reorder.batch_byte_offset_;
    inner.map(required("batch_number"), keys.batch_number_, walk_batch_number);
    inner.map(required("byte_offset"), keys.byte_offset_, walk_byte_offset);
    inner.number(required("batch_bytes"), keys.batch_bytes_, {1, UINT32_MAX, "bytes"});
    first(inner);
  });
  if (fields.reading() && given != 1)
    fields.problem("", concat(given == 0 ? "found no method" : "found several methods",
                              "; accepts one of seq_batch_number, seq_packets_per_batch, "
                              "batch_packet_number and batch_byte_offset"));
}

void walk_position(Fields& fields, ReorderPositionConfig& position) {
  fields.numbers(required("origin"), position.origin_, {0, UINT32_MAX});
  fields.choice(optional("flip"), position.flip_, FLIPS);
  fields.formed(optional("rotate"), position.rotate_, rotation_form);
}

void walk_modules(Fields& fields, ReorderModulesConfig& modules) {
  const auto pair = [&](Key key, std::vector<std::uint32_t>& values, std::uint32_t least) {
    fields.numbers(key, values, {least, UINT32_MAX});
  };
  pair(required("shape"), modules.shape_, 1);
  pair(optional("tile"), modules.tile_, 1);
  pair(optional("chip"), modules.chip_, 1);
  pair(optional("chip_gap"), modules.chip_gap_, 0);
  fields.list(required("positions"), modules.positions_, walk_position);
}

void walk_frame(Fields& fields, ReorderFrameConfig& frame) {
  fields.numbers(required("shape"), frame.shape_, {1, UINT32_MAX});
  if (fields.given("shape") && !fields.bad("shape") && frame.shape_.empty())
    fields.problem("shape",
                   "found an empty list; accepts the lengths of axes, such as [512, 1024]");
  fields.word(optional("dtype"), frame.dtype_, FRAME_DTYPES);
  const bool given = !frame.modules_.shape_.empty();
  fields.map({"modules", false, given}, frame.modules_, walk_modules);
}

}  // namespace

void walk_flow(Fields& fields, FlowConfig& flow, bool rx) {
  std::vector<FlowAction> actions = flow.actions_;
  // A transmit flow without actions has the default action, which is not written.
  if (actions.empty() && fields.writing() && (rx || flow.action_.type_ != FlowType::QUEUE))
    actions = {flow.action_};
  fields.name(required("name"), flow.name_);
  fields.number(required("id"), flow.id_, {0, MAX_STATIC_FLOW_ID});
  walk_actions(fields, actions, rx);
  fields.map(optional("match"), flow.match_,
             [&](Fields& inner, FlowMatch& match) { walk_match(inner, match, rx); });
  if (!fields.reading()) return;
  flow.actions_ = actions;
  if (!actions.empty()) flow.action_ = actions.back();
}

void walk_flex_item(Fields& fields, FlexItemConfig& item) {
  fields.name(required("name"), item.name_);
  fields.number(required("id"), item.id_, {0, INT32_MAX});
  fields.number(required("offset"), item.offset_, {0, MAX_FLEX_OFFSET, "bytes, a multiple of 4"});
  if (item.offset_ % 4 != 0)
    fields.problem("offset", concat("found ", item.offset_, "; accepts a multiple of 4 from 0 to ",
                                    MAX_FLEX_OFFSET, " (bytes)"));
  fields.number(required("udp_dst_port"), item.udp_dst_port_, PORT);
}

namespace {

/// Keys of the other kind of plan are written if a struct sets them, so that they are rejected.
void walk_plan_flows(Fields& fields, ReorderConfig& reorder, bool joint) {
  if (joint) {
    fields.texts(required("flows"), reorder.flows_);
    fields.refused("flow_ids",
                   "is a key of the plans of an interface; accepts flows: [interface/flow, ...] "
                   "here");
  } else {
    fields.numbers(required("flow_ids"), reorder.flow_ids_, {0, MAX_STATIC_FLOW_ID});
    fields.refused("flows",
                   "is a key of the plans under reorder_configs at the top level, which take flows "
                   "of several interfaces; accepts flow_ids here");
  }
  if (!fields.writing()) return;
  if (joint && reorder.flows_.empty() && !reorder.flow_ids_.empty())
    fields.numbers(optional("flow_ids"), reorder.flow_ids_, {});
  if (!joint && !reorder.flows_.empty()) fields.texts(optional("flows"), reorder.flows_);
}

void walk_plan(Fields& fields, ReorderConfig& reorder, bool joint) {
  fields.name(required("name"), reorder.name_);
  fields.word(required("reorder_type"), reorder.reorder_type_, REORDER_TYPES);
  fields.text(required("memory_region"), reorder.memory_region_);
  fields.number(optional("payload_byte_offset"), reorder.payload_byte_offset_, BYTES);
  fields.map(optional("payload_offset_field"), reorder.payload_offset_field_, walk_byte_offset);
  fields.number({"payload_bytes", false, reorder.payload_bytes_ != 0}, reorder.payload_bytes_,
                {1, UINT32_MAX, "bytes"});
  walk_plan_flows(fields, reorder, joint);
  fields.list({"conditions", false, !reorder.conditions_.empty()}, reorder.conditions_,
              walk_condition);
  fields.named({"columns", false, !reorder.columns_.empty()}, reorder.columns_,
               &ReorderColumnConfig::name_, column_form, walk_column);
  fields.map(optional("data_types"), reorder.data_types_,
             [](Fields& inner, ReorderDataTypesConfig& types) {
               const auto key = [&](Key name, std::string_view alias) {
                 return inner.or_alias(name, alias);
               };
               inner.choice(key(required("input_type"), "input"), types.input_type_, INPUT_TYPES);
               inner.choice(key(required("output_type"), "output"), types.output_type_,
                            OUTPUT_TYPES);
               inner.choice(key(optional("endianness"), "input_endianness"), types.endianness_,
                            ENDIANNESS);
               inner.choice(optional("packing"), types.packing_, PACKINGS);
             });
  fields.map(required("method"), reorder, walk_method);
  const bool payload = reorder.payload_base_ != ReorderBase::PACKET;
  fields.choice({"payload_base", false, payload}, reorder.payload_base_, BASES);
  fields.number({"window", false, reorder.window_ != 0}, reorder.window_, {1, 64, "batches"});
  fields.number({"timeout_us", false, reorder.timeout_us_ != 0}, reorder.timeout_us_,
                {0, UINT32_MAX, "microseconds"});
  fields.formed(optional("fill"), reorder.fill_, real_form);
  fields.formed_each({"cpu_core", false, !reorder.cpu_cores_.empty()}, reorder.cpu_cores_,
                     core_form);
  fields.number({"flow_stride", false, reorder.flow_stride_ != 0}, reorder.flow_stride_, PACKETS);
  fields.map(optional("frame"), reorder.frame_, walk_frame);
}

/// Keys that a plan has in all modes.
constexpr std::string_view OF_ALL_MODES[] = {"name",  "reorder_type", "memory_region", "flow_ids",
                                             "flows", "cpu_core",     "columns",       "modes"};

}  // namespace

void walk_reorder(Fields& fields, ReorderConfig& reorder, bool joint) {
  walk_plan(fields, reorder, joint);
  std::vector<std::string> names(reorder.modes_.size());
  std::ranges::transform(reorder.modes_, names.begin(), &ReorderModeConfig::name_);
  fields.variants({"modes", false, !names.empty()}, OF_ALL_MODES, names,
                  [&](Fields& inner, std::size_t index, const std::string& name) {
                    if (inner.reading()) {
                      reorder.modes_.push_back({name, {}});
                      return walk_plan(inner, reorder.modes_.back().plan_, joint);
                    }
                    // Listing adds elements to lists.
                    ReorderConfig copy = reorder.modes_[index].plan_;
                    walk_plan(inner, copy, joint);
                  });
}

}  // namespace daqiri::config
