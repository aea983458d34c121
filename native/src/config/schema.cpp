// Every key of a configuration, from the flows up.
#include "config/schema.h"

#include "engine/registry.h"

namespace daqiri::config {
namespace {

constexpr Range META_BUFFERS{1, 1'048'576, "bursts"};
constexpr Range BYTES{0, UINT32_MAX, "bytes"};

void walk_queue_action(Fields& fields, FlowAction& action) {
  const bool several = fields.given("ids");
  const bool spread = !action.ids_.empty();
  fields.number({"id", !several, !spread}, action.id_, WORD);
  fields.numbers({"ids", false, spread}, action.ids_, WORD);
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
  fields.formed({"outer_eth_src", encapsulate}, tunnel.outer_eth_src_, mac_form);
  fields.formed({"outer_eth_dst", encapsulate}, tunnel.outer_eth_dst_, mac_form);
  fields.formed({"outer_ipv4_src", encapsulate}, tunnel.outer_ipv4_src_, ipv4_form);
  fields.formed({"outer_ipv4_dst", encapsulate}, tunnel.outer_ipv4_dst_, ipv4_form);
  fields.number(optional("outer_ipv4_ttl"), tunnel.outer_ipv4_ttl_, {1, 255});
  fields.number(optional("outer_ipv4_tos"), tunnel.outer_ipv4_tos_, BYTE);
  if (fields.listing() || tunnel.type_ == TunnelType::VXLAN) {
    fields.number(required("vni"), tunnel.vni_, {0, 0xFFFFFF});
    fields.number(optional("outer_udp_src"), tunnel.outer_udp_src_, WORD);
    fields.number(optional("outer_udp_dst"), tunnel.outer_udp_dst_, PORT);
  }
  if (fields.listing() || tunnel.type_ == TunnelType::GRE)
    fields.number(optional("gre_protocol"), tunnel.gre_protocol_, WORD);
  if (fields.listing() || tunnel.type_ == TunnelType::NVGRE) {
    fields.number(required("tni"), tunnel.tni_, {0, 0xFFFFFF});
    fields.number(optional("flow_id"), tunnel.flow_id_, BYTE);
  }
}

/// `accepted`: the types that may stand here.
void walk_action(Fields& fields, FlowAction& action, bool rx, Names accepted) {
  fields.choice(required("type"), action.type_, fields.writing() ? Names(ACTIONS) : accepted);
  if (fields.reading() && (fields.bad("type") || !fields.given("type")))
    return fields.ignore_rest();
  const FlowActionType tunnel = rx ? FlowActionType::TUNNEL_DECAP : FlowActionType::TUNNEL_ENCAP;
  if (rx && (fields.listing() || action.type_ == FlowActionType::QUEUE))
    walk_queue_action(fields, action);
  if (!rx && (fields.listing() || action.type_ == FlowActionType::VLAN_PUSH))
    walk_vlan(fields, action.vlan_);
  if ((fields.listing() && accepted.size() > 1) || action.type_ == tunnel)
    fields.map(required("tunnel"), [&](Fields& inner) { walk_tunnel(inner, action.tunnel_, !rx); });
}

/// `action` holds one, `actions` a list. A single action of a receive flow is its queue.
void walk_actions(Fields& fields, std::vector<FlowAction>& actions, bool rx) {
  const Names all = rx ? RX_ACTIONS : TX_ACTIONS;
  const Names alone = rx ? all.first(1) : all;
  const bool several = fields.given("actions");
  if (several && fields.given("action"))
    fields.problem("action", "stands beside actions; accepts one of the two");
  const bool write_short = actions.size() == 1 && actions.front().type_ == FlowActionType::QUEUE;
  FlowAction single = write_short ? actions.front() : FlowAction{};
  const bool has_single = fields.map({"action", !several, write_short},
                                     [&](Fields& inner) { walk_action(inner, single, rx, alone); });
  fields.list({"actions", false, !write_short}, actions,
              [&](Fields& inner, FlowAction& action) { walk_action(inner, action, rx, all); });
  if (fields.reading() && has_single && !several) actions = {single};
}

void walk_ecpri(Fields& fields, EcpriMatch& match) {
  fields.number({"msg_type", false, match.has_msg_type_}, match.msg_type_, BYTE);
  // The two names are one field; the message type says which it is.
  constexpr std::uint8_t REAL_TIME_CONTROL = 2;
  const bool control = match.msg_type_ == REAL_TIME_CONTROL;
  fields.number({"pc_id", false, match.has_id_ && !control}, match.id_, WORD);
  fields.number({"rtc_id", false, match.has_id_ && control}, match.id_, WORD);
  if (!fields.reading()) return;
  match.has_msg_type_ = fields.given("msg_type");
  match.has_id_ = fields.given("pc_id") || fields.given("rtc_id");
  if (fields.given("pc_id") && fields.given("rtc_id"))
    fields.problem(
        "rtc_id", "stands beside pc_id; accepts one of the two, they are one field of the message");
  if (match.has_id_ && !match.has_msg_type_)
    fields.problem(fields.given("pc_id") ? "pc_id" : "rtc_id",
                   "has no msg_type beside it, which says where the id stands in the message; "
                   "accepts msg_type as well");
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
  if (fields.writing() ? write_flex : rx) {
    fields.number({"flex_item_id", by_flex}, flex.flex_item_id_, {0, INT32_MAX});
    fields.number({"val", by_flex}, flex.val_, {0, UINT32_MAX});
    fields.number(optional("mask"), flex.mask_, {0, UINT32_MAX});
  }
  fields.map(optional("ecpri"), match.ecpri_match_, walk_ecpri,
             match.type_ == FlowMatchType::ECPRI);
  if (fields.reading()) check_match_class(fields, match, flex_given);
}

template <class Flow>
void walk_flow(Fields& fields, Flow& flow, std::vector<FlowAction>& actions, bool rx) {
  fields.text(required("name"), flow.name_);
  fields.number(required("id"), flow.id_, {0, MAX_STATIC_FLOW_ID});
  walk_actions(fields, actions, rx);
  fields.map(optional("match"), flow.match_,
             [&](Fields& inner, FlowMatch& match) { walk_match(inner, match, rx); });
}

void walk_rx_flow(Fields& fields, FlowConfig& flow) {
  std::vector<FlowAction> actions = flow.actions_;
  if (actions.empty() && fields.writing()) actions = {flow.action_};
  walk_flow(fields, flow, actions, true);
  if (!fields.reading()) return;
  flow.actions_ = actions;
  if (!actions.empty()) flow.action_ = actions.back();
}

void walk_tx_flow(Fields& fields, TxFlowConfig& flow) {
  walk_flow(fields, flow, flow.actions_, false);
  if (fields.reading()) flow.has_match_ = flow.match_ != FlowMatch{};
}

void walk_access(Fields& fields, std::uint32_t& access) {
  std::vector<std::string> words;
  for (std::uint32_t bit = 1; bit != 0; bit <<= 1U) {
    if ((access & bit) != 0) words.push_back(text_of(MEMORY_ACCESS, static_cast<int>(bit)));
  }
  fields.texts(optional("access"), words, MEMORY_ACCESS);
  if (!fields.reading()) return;
  if (words.empty())
    fields.problem("access", "found an empty list; accepts " + alternatives(MEMORY_ACCESS));
  access = 0;
  for (const std::string& word : words) {
    if (const Name* match = find_name(MEMORY_ACCESS, word))
      access |= static_cast<std::uint32_t>(match->value);
  }
}

/// Keys of an endpoint from before endpoints were URIs; the transport then comes from another
/// endpoint or the engine.
struct LegacyKeys {
  std::string_view address, ip, port;
};

void walk_endpoint(Fields& fields, const LegacyKeys& keys, SocketEndpoint& endpoint) {
  fields.formed(optional(keys.address), endpoint, endpoint_form);
  if (fields.writing()) return;
  SocketEndpoint legacy;
  fields.formed(optional(keys.ip), legacy.host_, ip_form);
  fields.number(optional(keys.port), legacy.port_, PORT);
  if (fields.given(keys.address)) {
    for (const std::string_view key : {keys.ip, keys.port}) {
      if (fields.given(key))
        fields.problem(key, concat("stands beside ", keys.address,
                                   ", which holds address and port; remove it"));
    }
  } else if (fields.given(keys.ip)) {
    endpoint = std::move(legacy);
  } else if (fields.given(keys.port)) {
    fields.problem(keys.port, concat("has no ", keys.ip, " beside it; accepts ", keys.address,
                                     ": scheme://ip:port instead of both"));
  }
}

void walk_socket(Fields& fields, SocketConfig& socket) {
  fields.choice(required("mode"), socket.mode_, SOCKET_MODES);
  walk_endpoint(fields, {"local_addr", "local_ip", "local_port"}, socket.local_addr_);
  walk_endpoint(fields, {"remote_addr", "remote_ip", "remote_port"}, socket.remote_addr_);
  fields.number(optional("max_payload_size"), socket.max_payload_size_, BYTES);
  fields.number(optional("max_burst_interval_ms"), socket.max_burst_interval_ms_,
                {0, UINT32_MAX, "milliseconds"});
  fields.number(optional("min_ipg_ns"), socket.min_ipg_ns_, {0, UINT32_MAX, "nanoseconds"});
  fields.number(optional("retry_connect_s"), socket.retry_connect_s_, {1, 86400, "seconds"});
}

void walk_memory_region(Fields& fields, MemoryRegionConfig& region) {
  fields.text(required("name"), region.name_);
  fields.choice(required("kind"), region.kind_, MEMORY_KINDS);
  fields.number(optional("affinity"), region.affinity_, {0, 1023});
  walk_access(fields, region.access_);
  fields.number(required("num_bufs"), region.num_bufs_, {1, 2'147'483'648, "buffers"});
  fields.number(required("buf_size"), region.buf_size_, {1, UINT32_MAX, "bytes"});
  fields.flag(optional("owned"), region.owned_);
}

/// Keys that both kinds of queue have. In direct mode the caller polls: there is no core, no batch,
/// and no timeout of a receive queue.
void walk_queue(Fields& fields, QueueConfig& queue, bool rx) {
  fields.text(required("name"), queue.name_);
  fields.number(required("id"), queue.id_, WORD);
  fields.choice(optional("poll_mode"), queue.poll_mode_, POLL_MODES);
  const bool direct = queue.poll_mode_ == PollMode::DIRECT;
  const bool worker = !direct && !fields.bad("poll_mode");
  // A struct that has what direct mode forbids is written with it, and refused.
  fields.formed({"cpu_core", worker}, queue.cpu_core_, core_form);
  fields.number({"batch_size", worker, !direct || queue.batch_size_ != 0}, queue.batch_size_,
                {1, 1'048'576, "packets"});
  fields.texts(optional("memory_regions"), queue.mrs_);
  fields.number({"timeout_us", false, !direct || !rx || queue.timeout_us_ != 0}, queue.timeout_us_,
                {0, UINT32_MAX, "microseconds"});
  for (const std::string_view key : {"cpu_core", "batch_size", "timeout_us"}) {
    if (direct && fields.given(key) && (rx || key != "timeout_us"))
      fields.problem(key, "a queue with poll_mode: direct is polled by its caller; remove the key");
  }
}

void walk_rx_queue(Fields& fields, RxQueueConfig& queue) {
  walk_queue(fields, queue, true);
  fields.number(optional("split_boundary"), queue.split_boundary_, BYTES);
  // No key here: written so that a struct that has them is refused.
  if (fields.writing() && !queue.offloads_.empty())
    fields.texts(optional("offloads"), queue.offloads_, OFFLOADS);
}

void walk_tx_queue(Fields& fields, TxQueueConfig& queue) {
  walk_queue(fields, queue, false);
  fields.texts(optional("offloads"), queue.offloads_, OFFLOADS);
  fields.number(optional("pacing_mbps"), queue.pacing_mbps_, {0, UINT32_MAX, "Mb/s"});
  fields.number(optional("realtime_priority"), queue.realtime_priority_, {0, 99});
}

void walk_flex_item(Fields& fields, FlexItemConfig& item) {
  fields.text(required("name"), item.name_);
  fields.number(required("id"), item.id_, {0, INT32_MAX});
  fields.number(required("offset"), item.offset_, {0, 28, "bytes, a multiple of 4"});
  if (item.offset_ % 4 != 0)
    fields.problem(
        "offset", concat("found ", item.offset_, "; accepts a multiple of 4 from 0 to 28 (bytes)"));
  fields.number(required("udp_dst_port"), item.udp_dst_port_, PORT);
}

void walk_bit_field(Fields& fields, BitFieldConfig& field) {
  fields.number(required("bit_offset"), field.bit_offset_, {0, UINT32_MAX, "bits"});
  fields.number(required("bit_width"), field.bit_width_, {1, 32, "bits"});
}

void walk_method(Fields& fields, ReorderConfig& reorder) {
  bool by_batch = reorder.method_ == ReorderMethod::SEQ_BATCH_NUMBER;
  bool by_count = !by_batch;
  by_batch = fields.map({"seq_batch_number", false, by_batch}, [&](Fields& inner) {
    inner.map(required("sequence_number"), reorder.sequence_number_, walk_bit_field);
    inner.map(required("batch_number"), reorder.batch_number_, walk_bit_field);
  });
  by_count = fields.map({"seq_packets_per_batch", false, by_count}, [&](Fields& inner) {
    inner.map(required("sequence_number"), reorder.sequence_number_, walk_bit_field);
    inner.number(required("packets_per_batch"), reorder.packets_per_batch_,
                 {1, UINT32_MAX, "packets"});
  });
  if (!fields.reading()) return;
  reorder.method_ =
      by_batch ? ReorderMethod::SEQ_BATCH_NUMBER : ReorderMethod::SEQ_PACKETS_PER_BATCH;
  if (by_batch == by_count)
    fields.problem("", concat(by_batch ? "found two methods" : "found no method",
                              "; accepts one of seq_batch_number and seq_packets_per_batch"));
}

void walk_reorder(Fields& fields, ReorderConfig& reorder) {
  fields.text(required("name"), reorder.name_);
  fields.choice(required("reorder_type"), reorder.type_, REORDER_TYPES);
  fields.text(required("memory_region"), reorder.memory_region_);
  fields.number(optional("payload_byte_offset"), reorder.payload_byte_offset_, BYTES);
  fields.numbers(required("flow_ids"), reorder.flow_ids_, {0, MAX_STATIC_FLOW_ID});
  reorder.has_data_types_ =
      fields.map({"data_types", false, reorder.has_data_types_}, [&](Fields& inner) {
        DataTypesConfig& types = reorder.data_types_;
        inner.choice(required("input_type"), types.input_type_, INPUT_TYPES);
        inner.choice(required("output_type"), types.output_type_, OUTPUT_TYPES);
        inner.choice(optional("endianness"), types.endianness_, ENDIANNESS);
      });
  fields.map(required("method"), reorder, walk_method);
}

void walk_rx(Fields& fields, RxConfig& rx) {
  fields.flag(optional("flow_isolation"), rx.flow_isolation_);
  fields.flag(optional("hardware_timestamps"), rx.hardware_timestamps_);
  fields.number(optional("dynamic_flow_capacity"), rx.dynamic_flow_capacity_,
                {0, 8'388'608, "flows"});
  fields.list(required("queues"), rx.queues_, walk_rx_queue);
  fields.list(optional("flex_items"), rx.flex_items_, walk_flex_item);
  fields.list(optional("flows"), rx.flows_, walk_rx_flow);
  fields.list(optional("reorder_configs"), rx.reorder_configs_, walk_reorder);
}

void walk_tx(Fields& fields, TxConfig& tx) {
  fields.flag(optional("accurate_send"), tx.accurate_send_);
  fields.list(required("queues"), tx.queues_, walk_tx_queue);
  fields.list(optional("flows"), tx.flows_, walk_tx_flow);
}

void walk_interface(Fields& fields, InterfaceConfig& interface) {
  fields.text(required("name"), interface.name_);
  fields.text(required("address"), interface.address_);
  interface.has_socket_ =
      fields.map(optional("socket_config"), interface.socket_, walk_socket, interface.has_socket_);
  interface.has_roce_ = fields.map(
      optional("roce_config"), interface.roce_,
      [](Fields& inner, RoceConfig& roce) {
        inner.word(optional("transport_mode"), roce.transport_mode_, TRANSPORT_MODES);
      },
      interface.has_roce_);
  fields.map(optional("rx"), interface.rx_, walk_rx);
  fields.map(optional("tx"), interface.tx_, walk_tx);
}

/// ENGINES, and what else is registered.
std::vector<Name> engine_names() {
  std::vector<Name> names(std::begin(ENGINES), std::end(ENGINES));
  for (const EngineEntry& engine : engines()) {
    if (find_name(names, engine.traits.name) == nullptr)
      names.emplace_back(engine.traits.name, EngineType::OTHER);
  }
  return names;
}

void walk_config(Fields& fields, NetworkConfig& config) {
  CommonConfig& common = config.common_;
  fields.refused("manager",
                 "is no key any more: 'engine' names what moves the packets; accepts engine: " +
                     alternatives(engine_names()) + ", or nothing to have it inferred");
  fields.refused("protocol",
                 "is no key any more: the transport is the scheme of socket_config.local_addr and "
                 "remote_addr; accepts udp://ip:port, tcp://ip:port or roce://ip[:port] there");
  fields.number(required("version"), common.version, {1, 1});
  fields.number(required("master_core"), common.master_core_, CPU_CORE);
  fields.choice(required("stream_type"), common.stream_type, STREAM_TYPES);
  fields.word(optional("engine"), common.engine, engine_names());
  fields.choice(optional("log_level"), config.log_level_, LOG_LEVELS);
  fields.flag(optional("debug"), config.debug_);
  fields.choice(optional("loopback"), common.loopback_, LOOPBACK_TYPES);
  fields.number(optional("tx_meta_buffers"), config.tx_meta_buffers_, META_BUFFERS);
  fields.number(optional("rx_meta_buffers"), config.rx_meta_buffers_, META_BUFFERS);
  fields.list(optional("memory_regions"), config.mrs_, walk_memory_region);
  fields.list(required("interfaces"), config.ifs_, walk_interface);
}

Node written(NetworkConfig config, bool listing) {
  Findings none;
  return Fields(Place(none), listing).run([&](Fields& fields) { walk_config(fields, config); });
}

}  // namespace

void read_config(const Node& root, UnknownKeys unknown, Findings& findings, NetworkConfig& config) {
  Fields(root, Place(findings), unknown).run([&](Fields& fields) { walk_config(fields, config); });
}

Node write_config(const NetworkConfig& config) { return written(config, false); }

Node default_config() { return written({}, true); }

}  // namespace daqiri::config
